package stats

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// cadvisorFamilies are the metrics of /metrics/cadvisor, with the names and labels that dashboards and alerts know.
type cadvisorFamilies struct {
	lastSeen, start, cpuTotal, cpuUser, cpuSystem, periods, throttledPeriods, throttled          family
	burstPeriods, burst                                                                          family
	memUsage, memWorkingSet, memRSS, memCache, memSwap, memMapped, memKernel, memFailed, memPeak family
	memActive, memInactive, memFailures, ooms                                                    family
	fsUsage, fsLimit, fsInodes, fsInodesFree, fsReadBytes, fsWrittenBytes, fsReads, fsWrites     family
	disk                                                                                         diskFamilies
	rxBytes, rxPackets, rxErrors, rxDrops, txBytes, txPackets, txErrors, txDrops                 family
	processes, threads, threadsMax, descriptors, sockets, ulimits, blkio                         family
	specPeriod, specQuota, specShares, specMemory, specSwap, specReservation                     family
	psiCPUFull, psiCPUSome, psiMemoryFull, psiMemorySome, psiIOFull, psiIOSome                   family
	machineCores, machineSockets                                                                 family
	ioCost                                                                                       [len(ioCosts)]family
	machineCPUs, machineMemory, machineSwap, machineError, version, containerError               family
}

// newCadvisorFamilies makes the families. The function is long because it is a table with a line for each metric: a reader finds the name,
// the kind and the help of a metric in one place, in the order of the fields.
func newCadvisorFamilies() *cadvisorFamilies {
	base := []string{"container", "id", "image", "name", "namespace", "pod"}
	gauge := func(name, help string, extra ...string) family {
		return newFamily(prometheus.GaugeValue, name, help, slices.Concat(base, extra)...)
	}
	counter := func(name, help string, extra ...string) family {
		return newFamily(prometheus.CounterValue, name, help, slices.Concat(base, extra)...)
	}
	machine := func(name, help string) family {
		return newFamily(prometheus.GaugeValue, name, help, "boot_id", "machine_id", "system_uuid")
	}
	f := &cadvisorFamilies{
		lastSeen: gauge("container_last_seen", "When the container was last measured, in seconds since the epoch"),
		start:    gauge("container_start_time_seconds", "When the container started, in seconds since the epoch"),

		cpuTotal:         counter("container_cpu_usage_seconds_total", "CPU time used, in seconds", "cpu"),
		cpuUser:          counter("container_cpu_user_seconds_total", "CPU time used in user mode, in seconds"),
		cpuSystem:        counter("container_cpu_system_seconds_total", "CPU time used in the kernel, in seconds"),
		periods:          counter("container_cpu_cfs_periods_total", "Periods in which a CPU quota was in force"),
		throttledPeriods: counter("container_cpu_cfs_throttled_periods_total", "Periods in which the CPU quota ran out"),
		throttled:        counter("container_cpu_cfs_throttled_seconds_total", "Seconds that tasks waited because the CPU quota had run out"),
		burstPeriods:     counter("container_cpu_cfs_burst_periods_total", "Periods in which more than the CPU quota was used"),
		burst:            counter("container_cpu_cfs_burst_seconds_total", "Seconds of CPU time used beyond the CPU quota"),

		memUsage:      gauge("container_memory_usage_bytes", "Memory in use in bytes, with the page cache"),
		memWorkingSet: gauge("container_memory_working_set_bytes", "Memory in use without inactive file pages, in bytes"),
		memRSS:        gauge("container_memory_rss", "Anonymous memory in bytes"),
		memCache:      gauge("container_memory_cache", "Page cache in bytes"),
		memSwap:       gauge("container_memory_swap", "Swap in use in bytes"),
		memMapped:     gauge("container_memory_mapped_file", "Memory-mapped files in bytes"),
		memKernel:     gauge("container_memory_kernel_usage", "Kernel memory in bytes"),
		memFailed:     counter("container_memory_failcnt", "How often the memory in use reached the limit"),
		memPeak:       gauge("container_memory_max_usage_bytes", "Highest memory in use so far, in bytes"),
		memActive:     gauge("container_memory_total_active_file_bytes", "Active file pages in bytes"),
		memInactive:   gauge("container_memory_total_inactive_file_bytes", "Inactive file pages in bytes"),
		memFailures:   counter("container_memory_failures_total", "Page faults", "failure_type", "scope"),
		ooms:          counter("container_oom_events_total", "Processes that the kernel killed because memory ran out"),

		fsUsage:        gauge("container_fs_usage_bytes", "Bytes in use on this filesystem", "device"),
		fsLimit:        gauge("container_fs_limit_bytes", "Size of this filesystem in bytes", "device"),
		fsInodes:       gauge("container_fs_inodes_total", "Inodes that this filesystem has", "device"),
		fsInodesFree:   gauge("container_fs_inodes_free", "Inodes that are free on this filesystem", "device"),
		fsReadBytes:    counter("container_fs_reads_bytes_total", "Bytes read", "device"),
		fsWrittenBytes: counter("container_fs_writes_bytes_total", "Bytes written", "device"),
		fsReads:        counter("container_fs_reads_total", "Reads completed", "device"),
		fsWrites:       counter("container_fs_writes_total", "Writes completed", "device"),

		blkio: counter("container_blkio_device_usage_total", "Bytes moved, by kind of operation", "device", "major", "minor", "operation"),

		processes:   gauge("container_processes", "Processes in the container"),
		threads:     gauge("container_threads", "Threads in the container"),
		threadsMax:  gauge("container_threads_max", "Threads that the container may have; 0: no limit"),
		descriptors: gauge("container_file_descriptors", "File descriptors that are open"),
		sockets:     gauge("container_sockets", "Sockets that are open"),
		ulimits:     gauge("container_ulimits_soft", "Soft limits of the container's first process; -1: none", "ulimit"),

		specPeriod:      gauge("container_spec_cpu_period", "CPU period in microseconds"),
		specQuota:       gauge("container_spec_cpu_quota", "CPU quota in microseconds"),
		specShares:      gauge("container_spec_cpu_shares", "CPU shares"),
		specMemory:      gauge("container_spec_memory_limit_bytes", "Memory limit; 0: none"),
		specSwap:        gauge("container_spec_memory_swap_limit_bytes", "Swap limit; 0: none"),
		specReservation: gauge("container_spec_memory_reservation_limit_bytes", "Memory reservation; 0: none"),

		machineCPUs:    machine("machine_cpu_cores", "Logical CPU cores"),
		machineCores:   machine("machine_cpu_physical_cores", "Physical CPU cores"),
		machineSockets: machine("machine_cpu_sockets", "CPU sockets"),
		machineMemory:  machine("machine_memory_bytes", "Memory of the machine"),
		machineSwap:    machine("machine_swap_bytes", "Swap of the machine"),
		machineError:   newFamily(prometheus.GaugeValue, "machine_scrape_error", "1 if the machine could not be measured, else 0"),
		containerError: newFamily(prometheus.GaugeValue, "container_scrape_error", "1 if something could not be measured, else 0"),
		version: newFamily(prometheus.GaugeValue, "cadvisor_version_info", "Always 1; the labels have the versions",
			"kernelVersion", "osVersion", "dockerVersion", "cadvisorVersion", "cadvisorRevision"),
	}
	f.disk = newDiskFamilies(counter, gauge)
	for i, c := range ioCosts {
		f.ioCost[i] = counter("container_fs_io_cost_"+c.name+"_seconds_total", c.help, "device")
	}
	f.setNetwork(counter)
	f.setPressure(counter)
	return f
}

func (f *cadvisorFamilies) setNetwork(counter func(name, help string, extra ...string) family) {
	for dir, fields := range map[string][4]*family{
		"receive":  {&f.rxBytes, &f.rxPackets, &f.rxErrors, &f.rxDrops},
		"transmit": {&f.txBytes, &f.txPackets, &f.txErrors, &f.txDrops},
	} {
		for i, what := range [...]string{"bytes", "packets", "errors", "packets_dropped"} {
			*fields[i] = counter("container_network_"+dir+"_"+what+"_total", networkHelp(dir, what), "interface")
		}
	}
}

func (f *cadvisorFamilies) setPressure(counter func(name, help string, extra ...string) family) {
	for resource, fields := range map[string][2]*family{
		"cpu": {&f.psiCPUFull, &f.psiCPUSome}, "memory": {&f.psiMemoryFull, &f.psiMemorySome}, "io": {&f.psiIOFull, &f.psiIOSome},
	} {
		*fields[0] = counter("container_pressure_"+resource+"_stalled_seconds_total", "Seconds in which all tasks waited for "+resource)
		*fields[1] = counter("container_pressure_"+resource+"_waiting_seconds_total", "Seconds in which at least one task waited for "+resource)
	}
}

// networkHelp returns the help text of a counter of network interfaces, for example "Packets dropped instead of being received".
func networkHelp(dir, what string) string {
	done := dir + "d" // for example "received"
	if dir == "transmit" {
		done = "transmitted"
	}
	switch what {
	case "bytes":
		return "Bytes " + done
	case "packets":
		return "Packets " + done
	case "errors":
		return "Errors while packets were " + done
	}
	return "Packets dropped instead of being " + done
}
