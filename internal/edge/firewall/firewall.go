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

// CheckEvery is how often the rules are looked at; RetryAfter is when it is tried again after an error.
const (
	CheckEvery = 5 * time.Minute
	RetryAfter = time.Minute
)

// Runner runs a program with text on its standard input and returns what it printed. The error is an *exec.ExitError where
// the program ended with another code than 0, and wraps exec.ErrNotFound where there is none. It is called by one
// goroutine at a time.
type Runner func(ctx context.Context, stdin string, argv ...string) (string, error)

// Config is what a Firewall works with.
type Config struct {
	// Run runs programs: Exec, or another network namespace's in tests.
	Run Runner
	Log *slog.Logger
}

// Firewall keeps the rules. Create it with New, then Run it.
type Firewall struct {
	cfg Config
	// listing is what nft printed after the rules were made there; "" while they are not.
	listing string
}

// New makes a Firewall. It changes nothing.
func New(cfg Config) *Firewall { return &Firewall{cfg: cfg} }

// Run keeps the rules in place until ctx ends. It never fails: a machine without a packet filter runs pods all the same,
// and the log says what is missing.
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
				f.cfg.Log.Warn("127.0.0.0/8 is not protected from other hosts: install iptables or nft, or set makeIPTablesUtilChains: false where something else does it", "err", err)
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

// Ensure makes what is missing of the rules, and returns the program that made it; "" where all was there.
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

// dropRule is the rule as kube-proxy makes it too, so that the two are one.
var dropRule = []string{
	"-m", "comment", "--comment", "block incoming localnet connections", "-d", "127.0.0.0/8", "!", "-s", "127.0.0.0/8",
	"-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED,DNAT", "-j", "DROP",
}

// iptables looks for each part and adds those that are missing, at once for each table.
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
		if hasChain { // without it, to ask for a rule that names it is a mistake of another kind
			if has, err = f.has(ctx, "iptables", append([]string{"-t", "filter", "-C"}, rule...)...); err != nil {
				return false, err
			}
		}
		if !has {
			filter.WriteString("-I " + quoted(rule) + "\n") // at the head: a rule before it may accept
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

// hint makes the chains that say which iptables is in use.
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

// has asks for a chain or a rule. iptables ends with 1 where there is none.
func (f *Firewall) has(ctx context.Context, program string, args ...string) (bool, error) {
	_, err := f.cfg.Run(ctx, "", append([]string{program, "-w", "5"}, args...)...)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask for the chain %s: %w", firewallChain, err)
	}
	return true, nil
}

func (f *Firewall) restore(ctx context.Context, program, text string) error {
	if _, err := f.cfg.Run(ctx, text, program, "-w", "5", "--noflush"); err != nil {
		return fmt.Errorf("make the chain %s: %w", firewallChain, err)
	}
	return nil
}

// quoted writes a rule for iptables-restore.
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
