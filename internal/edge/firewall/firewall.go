package firewall

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"strings"
	"time"
)

// CheckEvery is the time between two checks of the rules. RetryAfter is the wait after an error.
const (
	CheckEvery = 5 * time.Minute
	RetryAfter = time.Minute
)

// Runner runs a program with text on its standard input and returns its output. If the exit code is not 0, the error is an
// *exec.ExitError. If the program does not exist, it wraps exec.ErrNotFound. One goroutine at a time calls it.
type Runner func(ctx context.Context, stdin string, argv ...string) (string, error)

// Config configures a Firewall.
type Config struct {
	// Run runs programs. It is Exec outside of tests; in tests it runs them in another network namespace.
	Run Runner
	Log *slog.Logger
}

// Firewall keeps the rules in place. Create it with New, then Run it.
type Firewall struct {
	cfg Config
	// listing is the output of nft about the table directly after nft created the rules; "": nft has not created them.
	listing string
}

// New returns a Firewall. It changes nothing.
func New(cfg Config) *Firewall { return &Firewall{cfg: cfg} }

// Run keeps the rules in place until ctx ends. It never fails: a machine without a packet filter still runs pods, and the log
// reports the problem.
func (f *Firewall) Run(ctx context.Context) error {
	said := ""
	for {
		next := CheckEvery
		made, err := f.Ensure(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			next = RetryAfter
			if err.Error() != said {
				f.cfg.Log.Warn("127.0.0.0/8 is not protected from other hosts: install iptables or nft, or set makeIPTablesUtilChains: false if another program adds such a rule", "err", err)
			}
			said = err.Error()
		default:
			said = ""
			if made != "" {
				f.cfg.Log.Info("127.0.0.0/8 is protected from other hosts", "by", made)
			}
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}

// Ensure adds the missing rules and returns the program that added them; "": none was missing.
func (f *Firewall) Ensure(ctx context.Context) (made string, err error) {
	changed, err := f.iptables(ctx)
	if err == nil {
		return named(changed, "iptables"), nil
	}
	changed, errNFT := f.nft(ctx)
	if errNFT == nil {
		return named(changed, "nft"), nil
	}
	return "", errors.Join(err, errNFT)
}

func named(changed bool, program string) string {
	if changed {
		return program
	}
	return ""
}

const (
	firewallChain = "KUBE-FIREWALL"
	hintChain     = "KUBE-IPTABLES-HINT"
	canaryChain   = "KUBE-KUBELET-CANARY"
)

// dropRule drops packets from other hosts to 127.0.0.0/8. It is equal to the rule that kube-proxy adds, so that the chain contains the rule
// only once.
var dropRule = []string{
	"-m", "comment", "--comment", "block incoming localnet connections", "-d", "127.0.0.0/8", "!", "-s", "127.0.0.0/8",
	"-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED,DNAT", "-j", "DROP",
}

// iptables checks each rule and adds the missing ones, with one transaction per table.
func (f *Firewall) iptables(ctx context.Context) (changed bool, err error) {
	var filter strings.Builder
	hasChain, err := f.has(ctx, "iptables", "-t", "filter", "-S", firewallChain)
	if err != nil {
		return false, err
	}
	if !hasChain {
		filter.WriteString(":" + firewallChain + " - [0:0]\n")
	}
	for _, rule := range [][]string{
		append([]string{firewallChain}, dropRule...), {"INPUT", "-j", firewallChain}, {"OUTPUT", "-j", firewallChain},
	} {
		has := false
		if hasChain { // without the chain, a check for a rule that names it would be an error
			if has, err = f.has(ctx, "iptables", append([]string{"-t", "filter", "-C"}, rule...)...); err != nil {
				return false, err
			}
		}
		if !has {
			filter.WriteString("-I " + quoted(rule) + "\n") // insert the rule at the head of the chain, because an earlier rule may accept the packet
		}
	}
	if filter.Len() > 0 {
		if err := f.restore(ctx, "iptables-restore", "*filter\n"+filter.String()+"COMMIT\n"); err != nil {
			return false, err
		}
	}
	for _, family := range []string{"iptables", "ip6tables"} {
		made, err := f.hint(ctx, family)
		if err != nil && family == "iptables" {
			return false, err
		}
		if err != nil {
			f.cfg.Log.Debug("no chains for other programs in the tables of IPv6", "err", err)
		}
		changed = changed || made
	}
	return changed || filter.Len() > 0, nil
}

// hint adds the chains that show which variant of iptables is in use.
func (f *Firewall) hint(ctx context.Context, family string) (changed bool, err error) {
	var mangle strings.Builder
	for _, chain := range []string{hintChain, canaryChain} {
		has, err := f.has(ctx, family, "-t", "mangle", "-S", chain)
		if err != nil {
			return false, err
		}
		if !has {
			mangle.WriteString(":" + chain + " - [0:0]\n")
		}
	}
	if mangle.Len() == 0 {
		return false, nil
	}
	return true, f.restore(ctx, family+"-restore", "*mangle\n"+mangle.String()+"COMMIT\n")
}

// has reports whether a chain or rule exists. iptables exits with code 1 if there is none.
func (f *Firewall) has(ctx context.Context, program string, args ...string) (bool, error) {
	_, err := f.cfg.Run(ctx, "", append([]string{program, "-w", "5"}, args...)...)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("check whether the rule or chain %q exists: %w", strings.Join(args, " "), err)
	}
	return true, nil
}

func (f *Firewall) restore(ctx context.Context, program, text string) error {
	if _, err := f.cfg.Run(ctx, text, program, "-w", "5", "--noflush"); err != nil {
		return fmt.Errorf("add chains and rules: %w", err)
	}
	return nil
}

// quoted formats a rule for iptables-restore.
func quoted(words []string) string {
	out := make([]string, 0, len(words))
	for _, w := range words {
		if strings.Contains(w, " ") {
			w = `"` + w + `"`
		}
		out = append(out, w)
	}
	return strings.Join(out, " ")
}
