package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// These are the netfilter tables of the CNI plugins. All instances share them; each rule names its network.
const (
	masqueradeTable = "inet cni_plugins_masquerade"
	hostPortTable4  = "ip cni_hostport"
	hostPortTable6  = "ip6 cni_hostport"
)

const forwarding = "/proc/sys/net/ipv4/ip_forward"

// MountsBelow returns the mount points below dir, in an order in which they can be unmounted.
func MountsBelow(dir string) ([]string, error) {
	dir, err := filepath.EvalSymlinks(dir) // /proc/self/mountinfo has paths without symbolic links
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var mounts []string
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) > 4 {
			if path := unescape.Replace(fields[4]); strings.HasPrefix(path, dir+"/") {
				mounts = append(mounts, path)
			}
		}
	}
	slices.Reverse(mounts) // a mount in a later line may be on or below one in an earlier line
	return mounts, nil
}

var (
	ruleHandle  = regexp.MustCompile(`# handle (\d+)$`)
	ruleComment = regexp.MustCompile(`comment "([^"]*)"`)
	// perPod matches the comment of a rule that belongs to one pod: that of a masquerade rule, or the sandbox ID in a rule for a host port
	perPod = regexp.MustCompile(`net: |^[0-9a-f]{64}$`)
)

// attached returns the IDs of the sandboxes that still have an IP address, because no CNI DEL has released it.
func (c Config) attached() []string {
	files, _ := filepath.Glob(filepath.Join(c.path("cni/ipam"), c.network(), "*.*"))
	var ids []string
	for _, file := range files {
		if data, err := os.ReadFile(file); err == nil {
			ids = append(ids, strings.Fields(string(data) + " -")[0])
		}
	}
	return ids
}

// removeRules removes the netfilter rules of this instance's network that no CNI DEL has removed. If no rule of any network is left, it
// also removes the tables of the CNI plugins.
func (c Config) removeRules(ctx context.Context) error {
	tables, err := Tables(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, table := range []string{masqueradeTable, hostPortTable4, hostPortTable6} {
		if slices.Contains(tables, table) {
			errs = append(errs, c.sweepTable(ctx, strings.Fields(table)))
		}
	}
	return errors.Join(errs...)
}

func (c Config) sweepTable(ctx context.Context, table []string) error {
	listing, err := nft(ctx, append([]string{"-a", "list", "table"}, table...)...)
	if err != nil {
		return err
	}
	chain, others, ids := "", false, c.attached()
	var errs []error
	for line := range strings.SplitSeq(listing, "\n") {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "chain "); ok {
			chain = strings.Fields(name)[0]
			continue
		}
		handle, comment := ruleHandle.FindStringSubmatch(line), ruleComment.FindStringSubmatch(line)
		if handle == nil || comment == nil || !perPod.MatchString(comment[1]) {
			continue
		}
		if !strings.Contains(comment[1], "net: "+c.network()+",") && !slices.Contains(ids, comment[1]) {
			others = true
			continue
		}
		_, err := nft(ctx, "delete", "rule", table[0], table[1], chain, "handle", handle[1])
		errs = append(errs, err)
	}
	if !others {
		_, err := nft(ctx, "delete", "table", table[0], table[1])
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func nft(ctx context.Context, args ...string) (string, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "nft", args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("nft %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return string(out), nil
}

// before is the state of the machine before the instance started.
type before struct {
	// Forwarding is the sysctl net.ipv4.ip_forward, which the CNI plugins set to 1.
	Forwarding string `json:"forwarding"`
	// Tables are the netfilter tables that existed, each as "FAMILY NAME".
	Tables []string `json:"tables"`
}

func (c Config) recordMachine(ctx context.Context) error {
	if _, err := os.Stat(c.path("machine.before")); err == nil {
		return nil // the file of an earlier start that was not stopped has the older state
	}
	value, err := os.ReadFile(forwarding)
	if err != nil {
		return fmt.Errorf("read sysctl: %w", err)
	}
	was := before{Forwarding: strings.TrimSpace(string(value))}
	if was.Tables, err = Tables(ctx); err != nil {
		return err
	}
	data, err := json.Marshal(was)
	if err != nil {
		return err
	}
	return os.WriteFile(c.path("machine.before"), data, 0o644)
}

// restoreMachine restores the state from before the start. IP forwarding stays on while the tables of the CNI plugins exist, because
// another instance then needs it.
func (c Config) restoreMachine(ctx context.Context) error {
	data, err := os.ReadFile(c.path("machine.before"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var was before
	if err == nil {
		err = json.Unmarshal(data, &was)
	}
	if err != nil {
		return fmt.Errorf("read what the machine was before: %w", err)
	}
	tables, err := Tables(ctx)
	if err != nil {
		return err
	}
	// The CNI plugin for masquerading also calls iptables to clean up, which creates empty tables.
	errs := []error{RemoveVoidTables(ctx, was.Tables)}
	if was.Forwarding == "0" && !slices.Contains(tables, masqueradeTable) {
		errs = append(errs, os.WriteFile(forwarding, []byte("0"), 0o644))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.Remove(c.path("machine.before"))
}

// RemoveVoidTables removes the tables of iptables that are empty, except the tables listed in before.
func RemoveVoidTables(ctx context.Context, before []string) error {
	tables, err := Tables(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, table := range tables {
		fields := strings.Fields(table)
		iptables := (fields[0] == "ip" || fields[0] == "ip6") && slices.Contains([]string{"nat", "filter", "mangle", "raw"}, fields[1])
		if iptables && !slices.Contains(before, table) {
			errs = append(errs, removeVoidTable(ctx, fields))
		}
	}
	return errors.Join(errs...)
}

// removeVoidTable removes a table that has no chains, because such a table has no effect. Other tables stay.
func removeVoidTable(ctx context.Context, table []string) error {
	listing, err := nft(ctx, append([]string{"list", "table"}, table...)...)
	if err != nil || strings.Contains(listing, "chain ") {
		return err
	}
	_, err = nft(ctx, "delete", "table", table[0], table[1])
	return err
}

// Tables returns the netfilter tables, each as "FAMILY NAME". Without the program nft it returns none.
func Tables(ctx context.Context) ([]string, error) {
	if _, err := exec.LookPath("nft"); err != nil {
		return nil, nil
	}
	listing, err := nft(ctx, "list", "tables")
	if err != nil {
		return nil, err
	}
	var tables []string
	for line := range strings.SplitSeq(listing, "\n") {
		if name, ok := strings.CutPrefix(line, "table "); ok {
			tables = append(tables, name)
		}
	}
	return tables, nil
}

// mayLowerOOMScore reports whether this process may give another process a lower OOM score than its own.
func mayLowerOOMScore() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false
	}
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}
