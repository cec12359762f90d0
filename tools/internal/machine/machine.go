package machine

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Snapshot has the items that were found on the machine, by kind (process, mount, ...).
type Snapshot map[string][]string

// kinds returns the kinds of items, each with the function that lists them.
func kinds(checkout string) map[string]func(ctx context.Context) ([]string, error) {
	return map[string]func(ctx context.Context) ([]string, error){
		"process":           func(context.Context) ([]string, error) { return processes(checkout) },
		"mount":             func(context.Context) ([]string, error) { return mounts() },
		"interface":         func(context.Context) ([]string, error) { return interfaces() },
		"network namespace": func(context.Context) ([]string, error) { return namespaces() },
		"cgroup":            func(context.Context) ([]string, error) { return cgroups() },
		"netfilter":         netfilter,
		"sysctl":            func(context.Context) ([]string, error) { return sysctls() },
		"file":              func(context.Context) ([]string, error) { return files() },
	}
}

// Take takes a snapshot of the machine. Of all processes it has only those that belong to the checkout.
func Take(ctx context.Context, checkout string) (Snapshot, error) {
	s := Snapshot{}
	for kind, list := range kinds(checkout) {
		items, err := list(ctx)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", kind, err)
		}
		slices.Sort(items)
		s[kind] = slices.Compact(items)
	}
	return s, nil
}

// Diff returns the differences between two snapshots as lines: "+" for an item only in after, "-" for one only in before.
func Diff(before, after Snapshot) []string {
	var diff []string
	for kind := range kinds("") {
		for _, item := range after[kind] {
			if _, found := slices.BinarySearch(before[kind], item); !found {
				diff = append(diff, "+ "+kind+" "+item)
			}
		}
		for _, item := range before[kind] {
			if _, found := slices.BinarySearch(after[kind], item); !found {
				diff = append(diff, "- "+kind+" "+item)
			}
		}
	}
	slices.Sort(diff)
	return diff
}

// processes returns the processes whose working directory or arguments lie in the checkout's .wherry directory, and those in a cgroup of a
// node. Zombies are left out, because their parents have to reap them.
func processes(checkout string) ([]string, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	ours := func(s string) bool { return strings.Contains(s, checkout+"/.wherry") }
	var found []string
	for _, dir := range dirs {
		if filepath.Base(dir) == strconv.Itoa(os.Getpid()) {
			continue
		}
		args, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || len(args) == 0 { // gone, a kernel thread, or a zombie
			continue
		}
		cwd, _ := os.Readlink(filepath.Join(dir, "cwd"))
		groups, _ := os.ReadFile(filepath.Join(dir, "cgroup"))
		line := strings.ReplaceAll(strings.TrimRight(string(args), "\x00"), "\x00", " ")
		if ours(cwd) || ours(line) || strings.Contains(string(groups), "/wherry-") {
			found = append(found, filepath.Base(dir)+" "+line)
		}
	}
	return found, nil
}

func mounts() ([]string, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var points []string
	for line := range strings.SplitSeq(strings.TrimSpace(string(data)), "\n") {
		fields := strings.Fields(line)
		points = append(points, fields[4]+" "+fields[2])
	}
	return points, nil
}

func interfaces() ([]string, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var list []string
	for _, one := range all {
		addrs, err := one.Addrs()
		if err != nil {
			continue // the process is gone
		}
		list = append(list, one.Name)
		for _, addr := range addrs {
			list = append(list, one.Name+" "+addr.String())
		}
	}
	return list, nil
}

// namespaces returns the network namespaces that processes are in. Namespaces that are mounted are in the list of mounts.
func namespaces() ([]string, error) {
	links, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		return nil, err
	}
	var found []string
	for _, link := range links {
		if name, err := os.Readlink(link); err == nil {
			found = append(found, name)
		}
	}
	return found, nil
}

func cgroups() ([]string, error) {
	var dirs []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil // the process is gone
	})
	return dirs, err
}

func netfilter(ctx context.Context) ([]string, error) {
	if _, err := exec.LookPath("nft"); err != nil {
		return nil, nil
	}
	out, err := exec.CommandContext(ctx, "nft", "-s", "list", "ruleset").Output()
	if err != nil {
		return nil, err
	}
	// Each line of a rule begins with its table, because different tables may have equal rules.
	var lines []string
	table := ""
	for line := range strings.SplitSeq(strings.TrimSpace(string(out)), "\n") {
		if strings.HasPrefix(line, "table ") {
			table = strings.TrimSuffix(line, " {")
		}
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, table+": "+line)
		}
	}
	return lines, nil
}

func sysctls() ([]string, error) {
	var values []string
	for _, root := range []string{"net/ipv4", "net/ipv6/conf/all", "net/ipv6/conf/default", "net/netfilter", "net/bridge", "vm", "kernel"} {
		err := filepath.WalkDir("/proc/sys/"+root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || changesByItself(path) {
				return nil
			}
			if data, err := os.ReadFile(path); err == nil {
				values = append(values, path+"="+strings.Join(strings.Fields(string(data)), " "))
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return values, nil
}

// changesByItself reports whether a sysctl can change although nobody sets it: counters, random numbers, and sysctls of single interfaces.
func changesByItself(path string) bool {
	for _, part := range []string{"/random/", "/ns_last_pid", "nf_conntrack_count", "/neigh/", "/kernel/pty/nr", "/fs/", "/kernel/perf_", "/kernel/keys/"} {
		if strings.Contains(path, part) {
			return true
		}
	}
	if _, rest, ok := strings.Cut(path, "/conf/"); ok {
		return !strings.HasPrefix(rest, "all/") && !strings.HasPrefix(rest, "default/")
	}
	return false
}

// files returns the files of runtimes and node agents at fixed paths of the machine.
func files() ([]string, error) {
	var found []string
	for _, pattern := range []string{
		"/etc/cni", "/etc/cni/*", "/etc/containerd", "/etc/kubernetes", "/etc/kubernetes/*", "/opt/cni", "/opt/containerd", "/run/cni", "/run/containerd",
		"/run/containerd/*", "/run/containerd/s/*", "/run/netns/*", "/run/nri", "/run/runc", "/run/runc/*", "/run/xtables.lock", "/usr/libexec/kubernetes",
		"/var/lib/cni", "/var/lib/cni/*/*", "/var/lib/containerd", "/var/lib/etcd", "/var/lib/kubelet", "/var/lib/kubelet/*",
		"/var/log/containers/*", "/var/log/pods", "/var/log/pods/*", "/var/run/kubernetes",
	} {
		matches, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		found = append(found, matches...)
	}
	return found, nil
}
