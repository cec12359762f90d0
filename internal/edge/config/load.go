package config

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/wherry-node/wherry/internal/core/yamldoc"
)

// Load reads a kubelet's command line (without the program's name) and the files that it names. The error joins all problems,
// or is ErrHelp, ErrVersion or ErrVersionRaw. Notices are valid with an error too.
func Load(args []string) (Config, []Notice, error) {
	args, notices := dropComments(args)

	first := baseConfig()
	flags := newFlagSet(&first)
	if err := parse(flags, args); err != nil {
		return Config{}, notices, err
	}
	notices = append(notices, flags.removedNotices()...)

	cfg := baseConfig()
	set, origins, err := loadFiles(flags.configFile, flags.configDir, first.Kubelet.FeatureGates, &cfg.Kubelet)
	if err != nil {
		return Config{}, notices, err
	}
	// Parse the command line a second time, over the values of the files.
	flags = newFlagSet(&cfg)
	gates := maps.Clone(cfg.Kubelet.FeatureGates)
	if err := parse(flags, args); err != nil {
		return Config{}, notices, err
	}
	for name, on := range gates {
		if _, flagged := cfg.Kubelet.FeatureGates[name]; !flagged {
			cfg.Kubelet.FeatureGates[name] = on
		}
	}
	if cfg.Wherry, err = loadWherry(flags.wherryFile); err != nil {
		return Config{}, notices, err
	}
	maps.Copy(set, flags.parsedFields())
	if err := finish(&cfg, flags, set, origins); err != nil {
		return Config{}, notices, err
	}
	cfg.Flags = flags.values()
	cfg.Files = Files{Args: args, Config: flags.configFile, DropIns: flags.configDir, Wherry: flags.wherryFile}
	notices = append(notices, flags.flagNotices()...)
	notices = append(notices, useNotices(&cfg, set)...)
	return cfg, append(notices, valueNotices(cfg)...), nil
}

// Usage returns the text of --help.
func Usage() string {
	return "Usage:\n  kubelet [flags]\n\nFlags:\n" + Flags().FlagUsagesWrapped(120)
}

// Flags returns all flags with their defaults, for help, manual pages and completion. The flags that Kubernetes has removed, and those of
// cAdvisor, are hidden.
func Flags() *pflag.FlagSet {
	cfg := baseConfig()
	return newFlagSet(&cfg).FlagSet
}

func baseConfig() Config {
	cfg := Config{
		NodeLabels: map[string]string{}, RootDir: defaultRootDir, CertDir: defaultCertDir,
		MaxDeadPerContainer: 1, MaxDeadContainers: -1,
	}
	setDefaults(&cfg.Kubelet, Gates{})
	cfg.Wherry = defaultWherry()
	return cfg
}

func parse(f *flagSet, args []string) error {
	if err := f.Parse(args); err != nil {
		return fmt.Errorf("command line: %w (kubelet --help lists the flags)", err)
	}
	switch {
	case f.help:
		return ErrHelp
	case f.version == "raw":
		return ErrVersionRaw
	case f.version != "" && f.version != "false":
		return ErrVersion
	}
	for _, word := range f.Args() {
		if word != "" { // an empty argument comes from an empty variable of a unit file or script
			return fmt.Errorf("command line: unexpected argument %q: the kubelet takes flags only", word)
		}
	}
	return nil
}

// dropComments removes each word that begins with #, and the words after it up to the next flag. Environment files with values over
// several lines have such comments (KUBELET_EXTRA_ARGS="--a=b \ # why \ --c=d"), and systemd does not remove them. It trims the
// other words, and keeps empty ones, because they may be the values of flags.
func dropComments(args []string) ([]string, []Notice) {
	var kept, dropped []string
	in := false
	for _, arg := range args {
		switch {
		case strings.HasPrefix(arg, "#"):
			in = true
		case strings.HasPrefix(arg, "-"):
			in = false
		}
		if in {
			dropped = append(dropped, arg)
		} else {
			kept = append(kept, strings.TrimSpace(arg))
		}
	}
	if dropped == nil {
		return kept, nil
	}
	return kept, []Notice{{NoticeChanged, "command line",
		fmt.Sprintf("%q ignored as a comment: systemd does not strip comments inside a quoted variable, move them to lines of their own", strings.Join(dropped, " "))}}
}

// loadFiles merges --config and --config-dir into kc, with defaults, and returns the paths that they set, and the files. It needs the
// gates of the command line, because some defaults depend on them.
func loadFiles(file, dir string, gates map[string]bool, kc *kubelet.KubeletConfiguration) (set map[string]string, origins []*yamldoc.Document, err error) {
	set = map[string]string{}
	known := maps.Collect(leaves(reflect.TypeFor[kubelet.KubeletConfiguration]()))
	base := map[string]any{}
	if file != "" {
		m, from, _, err := readFile(file, maxFile)
		if err != nil {
			return nil, nil, err
		}
		setPaths(m, known, "", set)
		base, origins = m, append(origins, from)
	}
	if err := decodeOver(base, gates, kc); err != nil {
		return nil, nil, err
	}
	defaultEviction(kc)
	if dir == "" {
		return set, origins, nil
	}
	// Drop-ins are merged over the file with its defaults, so that null in a drop-in means the default.
	dropIns, from, err := readDropIns(dir)
	if err != nil {
		return nil, nil, err
	}
	merged, err := toMap(kc)
	if err != nil {
		return nil, nil, err
	}
	for _, m := range dropIns {
		setPaths(m, known, "", set)
		merged = mergePatch(merged, m)
	}
	return set, append(origins, from...), decodeOver(merged, gates, kc)
}

func decodeOver(m map[string]any, flagGates map[string]bool, kc *kubelet.KubeletConfiguration) error {
	*kc = kubelet.KubeletConfiguration{}
	if err := toConfiguration(m, kc); err != nil {
		return err
	}
	all := maps.Clone(kc.FeatureGates)
	if all == nil {
		all = map[string]bool{}
	}
	maps.Copy(all, flagGates)
	gates, _ := NewGates(all) // finish returns these errors with the others
	setDefaults(kc, gates)
	return nil
}

// finish derives the remaining values from the flags and validates everything. set maps the paths that are set to their flags, or to ""
// if one of the files set them.
func finish(cfg *Config, f *flagSet, set map[string]string, files []*yamldoc.Document) error {
	var errs []error
	note := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	defaultEviction(&cfg.Kubelet)
	var gateErrs []error
	cfg.Gates, gateErrs = NewGates(cfg.Kubelet.FeatureGates)
	errs = append(errs, gateErrs...)

	var err error
	cfg.NodeIPs, err = parseNodeIPs(f.nodeIP)
	note(err)
	cfg.Simulated, err = parseSimulated(cfg.Kubelet.ContainerRuntimeEndpoint, cfg.Kubelet.MaxPods)
	note(err)
	cfg.keepInRoot()
	errs = append(errs, validate(cfg, f.flagOf())...)
	errs = append(errs, useErrors(cfg, set)...)
	errs = append(errs, f.removedErrors()...)
	if len(errs) == 0 {
		return nil
	}
	for i, err := range errs {
		if e := (*fieldError)(nil); errors.As(err, &e) && set[e.field()] == "" {
			errs[i] = located(e, files)
		}
	}
	slices.SortStableFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return fmt.Errorf("invalid configuration:\n%w", errors.Join(errs...))
}
