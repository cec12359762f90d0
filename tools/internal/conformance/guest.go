package conformance

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/wherry-node/wherry/tools/internal/images"
	"github.com/wherry-node/wherry/tools/internal/vm"
	"github.com/wherry-node/wherry/tools/internal/vmnode"
)

// These are paths in the guest. The test program runs in guestDir, because it writes the node's configuration into its working directory.
const (
	guestDir     = "/var/lib/node-tests"
	guestReport  = guestDir + "/report"
	guestDropIns = guestDir + "/kubelet.conf.d"
	guestDisk    = "/opt/" + guestDiskName // the disk with the programs and images of the suite
	guestUnits   = "/etc/systemd/system/"
)

const (
	guestDiskName = "suite"
	// guestUnit is the unit of the node agent under test. The tests look for a name of this form, kubelet-WORD, and not for kubelet.service.
	guestUnit = "kubelet-tests"
	// guestMiB and guestDiskMiB are the guest's memory and disk, in MiB. Tests of eviction fill 4 GiB of a disk and start thousands of processes.
	guestMiB     = 6 << 10
	guestDiskMiB = 20 << 10
)

// guestConfig is the KubeletConfiguration with which upstream's own runner starts a node for the suite, with the paths and certificates of this
// node. It answers everybody, but only root of this machine reaches the guest.
const guestConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: true}
  webhook: {enabled: false}
  x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}
authorization: {mode: AlwaysAllow}
readOnlyPort: 10255
cgroupDriver: systemd
cgroupRoot: /
kubeletCgroups: /kubelet.slice
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
healthzBindAddress: 127.0.0.1
healthzPort: 10248
resolvConf: /etc/resolv.conf
rotateCertificates: true
staticPodPath: /etc/kubernetes/manifests
fileCheckFrequency: 10s
serializeImagePulls: false
volumeStatsAggPeriod: 10s
failSwapOn: false
evictionPressureTransitionPeriod: 30s
evictionHard: {memory.available: 250Mi, nodefs.available: 10%, nodefs.inodesFree: 5%}
evictionMinimumReclaim: {nodefs.available: 5%, nodefs.inodesFree: 5%}
`

// guestPlane returns arguments of the control plane with which it does what the one of upstream's own runner does: pods get no token of a
// service account, and a node under pressure no taint. Tests count a pod's volumes, and look only at nodes without taints.
func guestPlane() []string {
	return []string{
		"--apiserver-arg=disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
		"--controller-manager-arg=controllers=*,bootstrapsigner,tokencleaner,-node-lifecycle-controller",
	}
}

// guestUnitText changes the packaged unit for the tests: they stop the agent with systemctl kill, change its configuration, and start it with
// systemctl restart. Meanwhile systemd must neither start the agent nor forget the unit. The watchdog is patient, because an emulated guest whose
// memory a test uses up may stand still for a minute.
const guestUnitText = `[Service]
Restart=no
RemainAfterExit=yes
WatchdogSec=300
`

// guestArguments is the file with arguments of the agent that come after those of the package.
const guestArguments = `KUBELET_EXTRA_ARGS="--config-dir=` + guestDropIns + ` --runtime-cgroups=/system.slice/containerd.service --v=2"
`

// guestLogind makes the stand-in run as logind. Upstream's kubelet does not need it, because it takes the tests' announcement of a shutdown
// for logind's.
const guestLogind = `[Service]
Type=simple
WatchdogSec=0
ExecStart=
ExecStart=` + guestDisk + `/logind
`

// guestRegistry is added to containerd's configuration. It makes containerd pull from the registry of the run.
const guestRegistry = `
[plugins."io.containerd.cri.v1.images".registry]
  config_path = "` + guestRegistries + `"
`

const guestRegistries = "/etc/containerd/certs.d"

// guestCluster is a development control plane and a virtual machine as its node, in which the agent under test runs as the unit guestUnit.
type guestCluster struct {
	*vmnode.Env
	o       Options
	archive string         // file with the images that the node has from the start
	set     []images.Image // what the node can pull
	end     func()         // ends the registry; nil: it does not run
}

func newGuestCluster(o Options, archive string, set []images.Image) (*guestCluster, error) {
	env, err := vmnode.New(vmnode.Options{
		Checkout: o.Checkout, Dir: o.dir("vm"), NoBuild: true, MemoryMiB: guestMiB, DiskMiB: guestDiskMiB, PlaneArgs: guestPlane(), Progress: o.Progress,
	})
	if err != nil {
		return nil, err
	}
	stand, err := placeholders(o.bin(""))
	return &guestCluster{Env: env, o: o, archive: archive, set: append(set[:len(set):len(set)], stand...)}, err
}

// prepared returns the path of a file that says for what a guest has been prepared. It is in the directory that Down removes.
func (g *guestCluster) prepared() string { return filepath.Join(g.Dir, "prepared") }

// purpose returns the text of the file prepared: the agent, and the guest's swap space.
func (g *guestCluster) purpose() string {
	return fmt.Sprintf("%s, %d MiB of swap space", g.o.Node, g.o.SwapMiB)
}

// kept reports whether a guest of an earlier run can be used: it runs, and is prepared for the same agent, with the same swap space.
func (g *guestCluster) kept() bool {
	was, err := os.ReadFile(g.prepared())
	return err == nil && string(was) == g.purpose() && g.Running()
}

// Up boots the guest with Wherry's packages, prepares it for the suite, and starts the agent under test with the configuration of the suite.
func (g *guestCluster) Up(ctx context.Context) error {
	kept := g.kept()
	if err := g.Env.Up(ctx); err != nil {
		return err
	}
	listener, address, err := g.Listen(registryPort)
	if err != nil {
		return err
	}
	registries := g.o.dir("registries")
	if g.end, err = serveImages(g.set, listener, registries); err != nil {
		return err
	}
	if !kept {
		if err := g.prepare(ctx, registries); err != nil {
			return err
		}
		if err := os.WriteFile(g.prepared(), []byte(g.purpose()), 0o644); err != nil {
			return err
		}
	}
	fmt.Fprintf(g.Progress, "the guest is prepared; its registry of images is at %s\n", address)
	// Tests that were interrupted may have left another configuration, static pods and a stopped agent.
	if err := g.Machine.CopyIn(ctx, "/var/lib/kubelet/config.yaml", 0o644, []byte(guestConfig)); err != nil {
		return err
	}
	if _, err := g.Machine.Shell(ctx, 5*time.Minute, startScript); err != nil {
		return fmt.Errorf("start the agent under test: %w", err)
	}
	return g.AwaitReady(ctx)
}

const startScript = `rm -rf ` + guestDropIns + `/* /etc/kubernetes/manifests/*
systemctl reset-failed ` + guestUnit + ` 2>/dev/null || true
systemctl restart ` + guestUnit + `
for i in $(seq 120); do busybox wget -q -O /dev/null http://127.0.0.1:10248/healthz && exit 0; sleep 1; done
systemctl status -n 20 --no-pager ` + guestUnit + `
exit 1`

// stop ends the registry.
func (g *guestCluster) stop() {
	if g.end != nil {
		g.end()
	}
}

// prepare brings the suite into a new guest: its programs and images, containerd's registry, and the unit of the agent under test.
func (g *guestCluster) prepare(ctx context.Context, registries string) error {
	disk := map[string]string{"ginkgo": g.o.bin("conformance/ginkgo"), g.o.suite().program: g.o.bin("conformance/" + g.o.suite().program), "images.tar": g.archive}
	if g.o.Node == "kubelet" {
		disk["kubelet"] = g.o.bin("conformance/kubelet")
	} else {
		disk["logind"] = g.o.bin("conformance/logind")
	}
	if err := g.Attach(ctx, guestDiskName, disk); err != nil {
		return err
	}
	if _, err := g.Machine.Shell(ctx, 10*time.Minute, unitScript(g.o.Node, g.o.SwapMiB)); err != nil {
		return fmt.Errorf("prepare the guest for the suite: %w", err)
	}
	files := map[string]string{
		guestUnits + guestUnit + ".service.d/50-tests.conf": guestUnitText,
		"/etc/default/kubelet":                              guestArguments,
		// The tests call sudo. They run as root, and Debian's sudo is not installed.
		guestDir + "/bin/sudo": "#!/bin/sh\nexec \"$@\"\n",
	}
	if g.o.Node != "kubelet" {
		files[guestUnits+"systemd-logind.service.d/50-tests.conf"] = guestLogind
	}
	hosts, err := filepath.Glob(filepath.Join(registries, "*", "hosts.toml"))
	if err != nil {
		return err
	}
	for _, path := range hosts {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files[guestRegistries+"/"+filepath.Base(filepath.Dir(path))+"/hosts.toml"] = string(text)
	}
	for path, text := range files {
		if _, err := g.Machine.Shell(ctx, time.Minute, "mkdir -p '"+filepath.Dir(path)+"'"); err != nil {
			return err
		}
		if err := g.Machine.CopyIn(ctx, path, 0o755, []byte(text)); err != nil {
			return err
		}
	}
	began := time.Now()
	if _, err := g.Machine.Shell(ctx, 20*time.Minute, imagesScript()); err != nil {
		return fmt.Errorf("give the guest the images of the suite: %w", err)
	}
	fmt.Fprintf(g.Progress, "the images of the suite were imported in %.0f s\n", time.Since(began).Seconds())
	return nil
}

// unitScript returns a script that replaces kubelet.service by the unit of the agent under test, a copy of the packaged unit. Upstream's
// kubelet runs without the limits of Wherry's package (20-hardening.conf), and Wherry without that of memory: the test of /stats/summary
// expects an agent whose memory is not limited.
func unitScript(agent string, swapMiB int) string {
	const unit, drops = guestUnits + guestUnit + ".service", guestUnits + guestUnit + ".service.d"
	lines := []string{
		"resize2fs /dev/vda 2>&1",
		"systemctl disable -q --now kubelet",
		"cp /lib/systemd/system/kubelet.service " + unit,
		"rm -rf " + drops,
		"cp -r /lib/systemd/system/kubelet.service.d " + drops,
		"mkdir -p " + guestDropIns,
		"ln -sfn " + guestDisk + "/e2e_node.test " + guestDir + "/e2e_node.test",
		"ln -sfn /var/lib/kubelet/config.yaml " + guestDir + "/kubelet-config",
	}
	if agent == "kubelet" {
		lines = append(lines, "rm "+drops+"/20-hardening.conf", "ln -sfn "+guestDisk+"/kubelet /usr/bin/kubelet")
	} else {
		lines = append(lines, "printf '[Service]\\nMemoryMax=infinity\\n' >"+drops+"/90-suite.conf")
	}
	if swapMiB > 0 {
		lines = append(lines, fmt.Sprintf("fallocate -l %dM /swapfile", swapMiB), "chmod 600 /swapfile", "mkswap -q /swapfile", "swapon /swapfile")
	}
	return strings.Join(lines, "\n")
}

// imagesScript returns a script that takes the new configuration into use, and imports the images of the suite.
//
// The suite also wants the busybox image of one digest, which only the original has. The script gives our busybox that name in addition. It is
// pinned, because it could not be pulled again after a test of image collection.
func imagesScript() string {
	const byDigest = e2eImages + "busybox@sha256:a9155b13325b2abef48e71de77bb8ac015412a566829f621d06bfae5c699b1b9"
	return strings.Join([]string{
		"cat >>/etc/containerd/config.toml <<'END'" + guestRegistry + "END",
		"systemctl daemon-reload",
		"systemctl restart containerd systemd-logind",
		"ctr -n k8s.io images import --local " + guestDisk + "/images.tar >/dev/null",
		"ctr -n k8s.io images tag " + e2eImages + busybox + " " + byDigest + " >/dev/null",
		"ctr -n k8s.io images label " + byDigest + " io.cri-containerd.pinned=pinned >/dev/null",
	}, "\n")
}

// guestExit is the error of a ginkgo that ended in the guest with this exit code, which is not 0.
type guestExit int

func (e guestExit) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// ExitCode returns the exit code.
func (e guestExit) ExitCode() int { return int(e) }

// mostReport is the largest size in bytes of a report or of an agent's log that is copied out of the guest.
const mostReport = 256 << 20

// run runs ginkgo in the guest, and copies its report into the directory report, and the logs of the agent and of containerd beside its log.
func (g *guestCluster) run(ctx context.Context, _ cluster, args []string, report string, log *os.File) error {
	if _, err := g.Machine.Shell(ctx, time.Minute, "rm -rf "+guestReport+"; mkdir -p "+guestReport); err != nil {
		return err
	}
	code, err := g.Machine.RunJob(ctx, vm.Job{
		Name: "node-tests", Dir: guestDir, Args: append([]string{guestDisk + "/ginkgo"}, args...),
		Search: guestDir + "/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		Most:   mostLog,
	}, log)
	if err != nil && !errors.Is(err, vm.ErrCut) {
		return err
	}
	if code != 0 {
		err = errors.Join(guestExit(code), err)
	}
	ctx = context.WithoutCancel(ctx) // an interrupted run has a report, too
	data, reading := g.Machine.CopyOut(ctx, guestReport+"/junit_01.xml", mostReport)
	if reading == nil {
		reading = os.WriteFile(filepath.Join(report, "junit_01.xml"), data, 0o644)
	}
	return errors.Join(err, reading, g.logs(ctx))
}

// logs copies the logs of the agent and of containerd to logs/node.log.
func (g *guestCluster) logs(ctx context.Context) error {
	const packed = guestDir + "/node.log.gz"
	if _, err := g.Machine.Shell(ctx, 5*time.Minute, "journalctl -u "+guestUnit+" -u containerd --no-pager -o short-iso | gzip -1 >"+packed); err != nil {
		return fmt.Errorf("collect the agent's log: %w", err)
	}
	data, err := g.Machine.CopyOut(ctx, packed, mostReport)
	if err != nil {
		return err
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("unpack the agent's log: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(unpacked, mostReport))
	return errors.Join(err, os.WriteFile(g.o.dir("logs", "node.log"), text, 0o644))
}
