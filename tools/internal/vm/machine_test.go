package vm

import (
	"bufio"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// emulator serves a fake QMP socket: it sends a greeting first, and an event before each answer. It answers the command named refuse with
// an error. The returned function asked returns the requests that have arrived since its last call.
func emulator(t *testing.T, path string, refuse string) (asked func() []string) {
	t.Helper()
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	requests := make(chan string, 16)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte(`{"QMP": {"version": {}}}` + "\n"))
			for in := bufio.NewScanner(conn); in.Scan(); {
				var r struct{ Execute string }
				_ = json.Unmarshal(in.Bytes(), &r)
				requests <- in.Text()
				out := `{"return": {}}`
				if r.Execute == refuse {
					out = `{"error": {"class": "GenericError", "desc": "Bus 'pci.0' does not support hotplugging"}}`
				}
				_, _ = conn.Write([]byte(`{"event": "RTC_CHANGE", "data": {}}` + "\n" + out + "\n"))
			}
			_ = conn.Close()
		}
	}()
	return func() (all []string) {
		for {
			select {
			case r := <-requests:
				all = append(all, r)
			default:
				return all
			}
		}
	}
}

func TestADiskIsPluggedIn(t *testing.T) {
	t.Parallel()
	c := sample()
	c.Dir = t.TempDir()
	m, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	asked := emulator(t, filepath.Join(c.Dir, "qmp.sock"), "")
	if err := m.AttachDisk(t.Context(), "more", "/x/more.img"); err != nil {
		t.Fatal(err)
	}
	want := `{"execute":"qmp_capabilities"}
{"execute":"blockdev-add","arguments":{"driver":"raw","file":{"driver":"file","filename":"/x/more.img"},"node-name":"more"}}
{"execute":"qmp_capabilities"}
{"execute":"device_add","arguments":{"drive":"more","driver":"virtio-blk-pci","id":"more","serial":"more"}}`
	if got := strings.Join(asked(), "\n"); got != want {
		t.Errorf("the emulator was asked:\n%s\nwant:\n%s", got, want)
	}
}

func TestARefusalOfTheEmulatorIsReported(t *testing.T) {
	t.Parallel()
	c := sample()
	c.Dir = t.TempDir()
	m, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.AttachDisk(t.Context(), "more", "/x"); err == nil || !strings.Contains(err.Error(), "attach disk more: connect to the emulator") {
		t.Errorf("a machine without an emulator: %v", err)
	}
	emulator(t, filepath.Join(c.Dir, "qmp.sock"), "device_add")
	if err := m.AttachDisk(t.Context(), "more", "/x"); err == nil || !strings.Contains(err.Error(), "device_add: Bus 'pci.0' does not support hotplugging") {
		t.Errorf("a bus without hotplug: %v", err)
	}
}

// If QEMU ends at once, Boot returns at once, and its error contains QEMU's output.
func TestAnEmulatorThatEndsIsNotWaitedFor(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, program), []byte("#!/bin/sh\necho no memory left >&2\nsleep 0.2\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	c := sample()
	c.Dir, c.Namespace, c.Tap, c.Image.Disk = filepath.Join(t.TempDir(), "m"), "", "", filepath.Join(bin, "disk")
	if err := os.WriteFile(c.Image.Disk, []byte("data"), 0o644); err != nil {
		t.Fatal(err)
	}
	m, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	err = m.Boot(t.Context())
	if err == nil || !strings.Contains(err.Error(), "the emulator has ended") || !strings.Contains(err.Error(), "no memory left") {
		t.Errorf("the error is %v", err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %s", took)
	}
	if err := m.PowerCut(t.Context()); err == nil {
		t.Error("the power of a machine without power was cut")
	}
}

// The disk of a new machine has the wanted size, but is never smaller than the image.
func TestADiskGrows(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(path, []byte("data"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ size, want int64 }{{0, 4}, {3, 4}, {1 << 20, 1 << 20}, {5, 1 << 20}} {
		if err := grow(path, step.size); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Size() != step.want {
			t.Errorf("wanted %d bytes, so it should have %d: %v, %v", step.size, step.want, info, err)
		}
	}
}
