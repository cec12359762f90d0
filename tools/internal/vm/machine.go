package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/wherry-node/wherry/tools/internal/proc"
)

// bootBound is how long a guest may take from power-on until its guest agent answers. Under emulation on a quiet machine a guest takes 15
// to 40 s.
const bootBound = 6 * time.Minute

// Machine is one virtual machine. Methods of its Agent may be called concurrently, other methods may not.
type Machine struct {
	*Agent
	config Config
}

// New returns the machine with this configuration, which may already run. It does no IO.
func New(c Config) (*Machine, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	m := &Machine{Agent: NewAgent(c.path("agent.sock")), config: c}
	m.runs = m.Running
	return m, nil
}

func (m *Machine) pidFile() string { return m.config.path("qemu.pid") }

// Console returns the path of the socket of the guest's serial console, where root is logged in.
func (m *Machine) Console() string { return m.config.path("console.sock") }

// Running reports whether the machine's QEMU process runs.
func (m *Machine) Running() bool {
	_, ok := proc.Find(m.pidFile())
	return ok
}

// Boot copies the image's disk, unless the machine already has a disk, starts QEMU, and waits until the guest agent answers.
func (m *Machine) Boot(ctx context.Context) error {
	c := &m.config
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return err
	}
	if _, err := os.Stat(c.path("disk.img")); errors.Is(err, os.ErrNotExist) {
		if err := run(ctx, "cp", "--sparse=always", "--reflink=auto", c.Image.Disk, c.path("disk.new")); err != nil {
			return fmt.Errorf("copy the image's disk: %w", err)
		}
		if err := grow(c.path("disk.new"), int64(c.DiskMiB)<<20); err != nil {
			return fmt.Errorf("enlarge the disk: %w", err)
		}
		if err := os.Rename(c.path("disk.new"), c.path("disk.img")); err != nil {
			return err
		}
	}
	path, args := c.commandLine()
	if _, err := proc.Start(proc.Spec{PIDFile: m.pidFile(), Log: c.path("qemu.log"), Path: path, Args: args}); err != nil {
		return fmt.Errorf("give the guest power: %w", err)
	}
	return m.awaitLife(ctx, "")
}

// grow enlarges a file to size bytes, unless it is already that large. The new part takes no space on the host until the guest writes to it.
func grow(path string, size int64) error {
	info, err := os.Stat(path)
	if err != nil || info.Size() >= size {
		return err
	}
	return os.Truncate(path, size)
}

// awaitLife waits until the guest agent answers and the guest's boot ID differs from the argument before, which is the ID of an earlier
// boot; "": there was none.
func (m *Machine) awaitLife(ctx context.Context, before string) error {
	var ended bool
	err := Await(ctx, "the guest's first sign of life", bootBound, 500*time.Millisecond, func(ctx context.Context) (bool, string) {
		if ended = !m.Running(); ended {
			return true, ""
		}
		if err := m.Ping(ctx, 5*time.Second); err != nil {
			return false, err.Error()
		}
		id, err := m.BootID(ctx)
		if err != nil {
			return false, err.Error()
		}
		return id != before, "the guest has not rebooted yet"
	})
	if ended {
		err = errors.New("the emulator has ended")
	}
	if err != nil {
		return fmt.Errorf("boot: %w\nlast lines of %s and %s:\n%s\n%s", err, m.config.path("qemu.log"), m.config.path("console.log"),
			lastLines(m.config.path("qemu.log"), 5), lastLines(m.config.path("console.log"), 12))
	}
	return nil
}

// BootID returns an ID that the guest's kernel chooses anew at each boot.
func (m *Machine) BootID(ctx context.Context) (string, error) {
	data, err := m.CopyOut(ctx, "/proc/sys/kernel/random/boot_id", 100)
	return strings.TrimSpace(string(data)), err
}

// PowerCut kills QEMU. Data that the guest has not synchronised to its disk is lost. Boot starts the guest again from its disk.
func (m *Machine) PowerCut(ctx context.Context) error {
	m.Close()
	p, ok := proc.Find(m.pidFile())
	if !ok {
		return errors.New("cut the power: the machine has none")
	}
	if err := p.Kill(ctx); err != nil {
		return fmt.Errorf("cut the power: %w", err)
	}
	return os.Remove(m.pidFile())
}

// Reboot makes the guest's systemd reboot, and waits until the guest agent answers again.
func (m *Machine) Reboot(ctx context.Context) error {
	before, err := m.BootID(ctx)
	if err != nil {
		return fmt.Errorf("reboot: %w", err)
	}
	if err := m.askReboot(ctx); err != nil {
		return fmt.Errorf("reboot: %w", err)
	}
	return m.awaitLife(ctx, before)
}

// askReboot asks the guest agent to reboot the guest. It does not require an answer, because a guest that reboots sends none.
func (m *Machine) askReboot(ctx context.Context) error {
	ctx, cancel := Patient(ctx, 5*time.Second, "ask the guest to reboot")
	defer cancel()
	err := m.call(ctx, "guest-shutdown", map[string]any{"mode": "reboot"}, nil)
	if said := (*refusal)(nil); errors.As(err, &said) {
		return err
	}
	return nil
}

// AttachDisk attaches a disk image to the running guest, which sees it as /dev/disk/by-id/virtio-NAME.
func (m *Machine) AttachDisk(ctx context.Context, name, file string) error {
	if err := m.qmp(ctx, "blockdev-add", map[string]any{
		"driver": "raw", "node-name": name, "file": map[string]any{"driver": "file", "filename": file},
	}); err != nil {
		return fmt.Errorf("attach disk %s: %w", name, err)
	}
	if err := m.qmp(ctx, "device_add", map[string]any{"driver": "virtio-blk-pci", "id": name, "drive": name, "serial": name}); err != nil {
		return fmt.Errorf("attach disk %s: %w", name, err)
	}
	return nil
}

// qmp sends one command to QEMU over QMP.
func (m *Machine) qmp(ctx context.Context, execute string, arguments any) error {
	ctx, cancel := Patient(ctx, answerBound, "ask the emulator to "+execute)
	defer cancel()
	ch, err := dial(ctx, m.config.path("qmp.sock"))
	if err != nil {
		return fmt.Errorf("connect to the emulator: %w", err)
	}
	defer func() { _ = ch.close() }()
	if err := ch.call(ctx, "qmp_capabilities", nil, nil); err != nil {
		return err
	}
	return ch.call(ctx, execute, arguments, nil)
}

func lastLines(path string, n int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return "  " + err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return "  " + strings.Join(lines[max(0, len(lines)-n):], "\n  ")
}
