package agent

import (
	"bytes"
	"crypto/x509"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-node/wherry/internal/edge/config"
)

// The error of an agent that may not make its directories says that it has to run as root, unless it does.
func TestAgentWithoutRootSaysSo(t *testing.T) {
	t.Parallel()
	denied := &fs.PathError{Op: "mkdir", Path: "/var/log/pods", Err: fs.ErrPermission}
	if err := asRoot(denied, 1000); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "run the agent as root") {
		t.Errorf("for another user: %v", err)
	}
	if err := asRoot(denied, 0); err.Error() != denied.Error() {
		t.Errorf("for root: %v", err)
	}
	if err := asRoot(fs.ErrExist, 1000); err != fs.ErrExist { //nolint:errorlint // nothing is added
		t.Errorf("for another error: %v", err)
	}
}

// limitProcess sets the OOM score (oomScoreAdj) and the limit of open files (maxOpenFiles) of the process. Here that is the process of the
// test, so the test restores the old values.
func TestLimitsOfTheProcess(t *testing.T) {
	const file = "/proc/self/oom_score_adj"
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	low := unix.Rlimit{Cur: limit.Max / 2, Max: limit.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
		_ = os.WriteFile(file, before, 0o644)
	}()
	cfg, _, err := config.Load([]string{"--oom-score-adj=777", "--max-open-files=" + strconv.FormatUint(low.Cur+1, 10)})
	if err != nil {
		t.Fatal(err)
	}
	n := &Agent{cfg: Config{Kubelet: cfg.Kubelet, ManageHost: true}, log: slog.New(slog.DiscardHandler)}
	if err := n.limitProcess(t.Context()); err != nil {
		t.Fatal(err)
	}
	if score, err := os.ReadFile(file); err != nil || string(score) != "777\n" {
		t.Errorf("oomScoreAdj: %q, %v", score, err)
	}
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &now); err != nil || now.Cur != low.Cur+1 {
		t.Errorf("maxOpenFiles: %d of %d, %v", now.Cur, low.Cur+1, err)
	}
}

// The second of two agents with one root directory does not start, and its error says which process to end. After the first one has ended,
// it starts. A directory that cannot be locked is no reason not to start.
func TestTwoAgentsWithOneRootDirectory(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	agent := func(dir string) *Agent {
		return &Agent{cfg: Config{RootDir: dir}, deps: Deps{Machine: RealMachine()}, log: slog.New(slog.NewTextHandler(&log, nil))}
	}
	dir := filepath.Join(t.TempDir(), "root")
	first, second := agent(dir), agent(dir)
	if err := first.lockRoot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := second.lockRoot(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "another agent uses the root directory "+dir+": it is locked by process "+strconv.Itoa(os.Getpid())) {
		t.Errorf("the second agent: %v", err)
	}
	first.close()
	if err := second.lockRoot(t.Context()); err != nil {
		t.Errorf("after the first agent has ended: %v", err)
	}
	second.close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := agent(file).lockRoot(t.Context()); err != nil || !strings.Contains(log.String(), "is not locked") {
		t.Errorf("a file instead of a directory: %v; log: %s", err, log.String())
	}
}

// With Config.ManageHost, makeIPTablesUtilChains: true adds the iptables rules, and protectKernelDefaults: false changes kernel settings.
// An agent that shares its runtime with others does not change kernel settings.
func TestMakeIPTablesUtilChains(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		args          []string
		manage        bool
		owner         string
		rules, kernel bool
	}{
		{"default", nil, true, "", true, true},
		{"switched off", []string{"--make-iptables-util-chains=false", "--protect-kernel-defaults"}, true, "", false, false},
		{"another's host", nil, false, "", false, false},
		{"a shared runtime", []string{"--make-iptables-util-chains=false"}, true, "wherry run", false, false},
	} {
		cfg, _, err := config.Load(c.args)
		if err != nil {
			t.Fatal(err)
		}
		a := &Agent{cfg: Config{Kubelet: cfg.Kubelet, ManageHost: c.manage, Owner: c.owner}, log: slog.New(slog.DiscardHandler)}
		if err := a.protectLoopback(t.Context()); err != nil || (len(a.opened.parts) == 1) != c.rules {
			t.Errorf("%s: %d parts keep rules (%v), want them: %t", c.name, len(a.opened.parts), err, c.rules)
		}
		if got := a.setsKernel(); got != c.kernel {
			t.Errorf("%s: sets the kernel's settings (protectKernelDefaults): %t", c.name, got)
		}
	}
}

// With the feature gates ReloadKubeletServerCertificateFile and ReloadKubeletClientCAFile off, changes of the files after the node's
// start have no effect.
func TestReloadGates(t *testing.T) {
	t.Parallel()
	for _, on := range []bool{true, false} {
		dir, other := t.TempDir(), t.TempDir()
		WriteIdentity(t, dir)
		WriteIdentity(t, other)
		set := strconv.FormatBool(on)
		cfg, _, err := config.Load([]string{
			"--feature-gates=ReloadKubeletServerCertificateFile=" + set + ",ReloadKubeletClientCAFile=" + set, "--client-ca-file=" + dir + "/a.crt",
			"--kubeconfig=" + dir + "/kubeconfig", "--tls-cert-file=" + dir + "/a.crt", "--tls-private-key-file=" + dir + "/a.key",
		})
		if err != nil {
			t.Fatal(err)
		}
		n := &Agent{cfg: Config{NodeName: "flip", Kubelet: cfg.Kubelet, Kubeconfig: cfg.Kubeconfig, CertDir: dir}, log: slog.New(slog.DiscardHandler)}
		defer n.close()
		if err := n.openClient(t.Context()); err != nil {
			t.Fatal(err)
		}
		serving, err := n.servingConfig()
		if err != nil {
			t.Fatal(err)
		}
		if serving.FixedFiles == on {
			t.Errorf("ReloadKubeletServerCertificateFile %t: FixedFiles is %t", on, serving.FixedFiles)
		}
		synctest.Test(t, func(t *testing.T) {
			c, err := serverTLS(&n.cfg, nil, n.log)
			if err != nil {
				t.Fatal(err)
			}
			named := func() *x509.CertPool {
				now, err := c.GetConfigForClient(nil)
				if err != nil {
					t.Fatal(err)
				}
				return now.ClientCAs
			}
			before := named()
			next, err := os.ReadFile(filepath.Join(other, "b.crt"))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(cfg.Kubelet.Authentication.X509.ClientCAFile, next, 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if got := named() != before; got != on {
				t.Errorf("ReloadKubeletClientCAFile %t: a changed file is in use: %t", on, got)
			}
		})
	}
}

// protectKernelDefaults: false writes only the settings whose value is wrong. A setting that the kernel does not have causes a warning.
func TestKernelSettings(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	settings := config.KernelSettings()
	missing, wrong := settings[0], settings[2]
	old := time.Unix(1, 0)
	for _, s := range settings {
		value := s.Value
		if s == wrong {
			value = "0"
		}
		if s == missing {
			continue
		}
		file := s.File(root)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(value+"\n"), 0o644), os.Chtimes(file, old, old)); err != nil {
			t.Fatal(err)
		}
	}
	for start := range 2 { // the second start finds all settings right
		var log bytes.Buffer
		setKernelAt(root, slog.New(slog.NewTextHandler(&log, nil)))
		if n := strings.Count(log.String(), "level=WARN"); n != 1 || !strings.Contains(log.String(), missing.Name) {
			t.Errorf("protectKernelDefaults false, start %d: %d warnings, want one of %s:\n%s", start, n, missing.Name, log.String())
		}
		if n := strings.Count(log.String(), "level=INFO"); n != 1-start {
			t.Errorf("protectKernelDefaults false, start %d: %d settings changed, want %d:\n%s", start, n, 1-start, log.String())
		}
	}
	for _, s := range settings {
		got, err := os.ReadFile(s.File(root))
		if s == missing {
			if err == nil {
				t.Errorf("%s was created", s.Name)
			}
			continue
		}
		st, statErr := os.Stat(s.File(root))
		if err != nil || statErr != nil || strings.TrimSpace(string(got)) != s.Value || s != wrong && !st.ModTime().Equal(old) {
			t.Errorf("%s is %q (%v, %v), want %s", s.Name, got, err, statErr, s.Value)
		}
	}
}

// maxOpenFiles above what the kernel grants is not cut silently: the agent takes what it may have and says how many that is.
func TestFewerOpenFilesThanConfigured(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) }()
	low := unix.Rlimit{Cur: limit.Max / 2, Max: limit.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	n := &Agent{log: slog.New(slog.NewTextHandler(&log, nil))}
	n.raiseOpenFiles(low, 1<<40) // more than fs.nr_open of any machine
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &now); err != nil || now.Cur != limit.Max || now.Max != limit.Max {
		t.Errorf("limit %v, want %v, %v", now, limit, err)
	}
	if want := "want=" + strconv.Itoa(1<<40) + " limit=" + strconv.FormatUint(limit.Max, 10); !strings.Contains(log.String(), "fewer files than maxOpenFiles says") || !strings.Contains(log.String(), want) {
		t.Errorf("log: %s", log.String())
	}
	log.Reset()
	if n.raiseOpenFiles(low, low.Cur); log.Len() > 0 {
		t.Errorf("enough already, and it logs: %s", log.String())
	}
}
