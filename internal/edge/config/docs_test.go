package config

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

// docs/flags.md has a row for every flag, with its default and the type of its value in words.
func TestFlagsPage(t *testing.T) {
	t.Parallel()
	page := flagsPage()
	if i := strings.Index(page, unknownType); i >= 0 {
		t.Errorf("valueOf has no word for %.60q", page[i:])
	}
	cfg := baseConfig()
	newFlagSet(&cfg).VisitAll(func(f *pflag.Flag) {
		if !strings.Contains(page, "\n| `--"+f.Name+"`") {
			t.Errorf("docs/flags.md has no row for --%s", f.Name)
		}
	})
	for _, row := range []string{
		"| `--port` | number | `10250` | yes | `port` |", "| `--runtime-cgroups` | text |  | yes |  |", "| `--lock-file` | text |  | no |  |",
		"| `--container-runtime` | 1.27 |", "memory.available<100Mi",
	} {
		if !strings.Contains(page, row) {
			t.Errorf("docs/flags.md lacks %q", row)
		}
	}
}

// The documentation for users is generated from the tables that the agent uses.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"configuration.md": configurationPage(), "flags.md": flagsPage(), "feature-gates.md": gatesPage()} {
		path := filepath.Join("..", "..", "..", "docs", name)
		if *update {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		was, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(was), text); diff != "" {
			t.Errorf("docs/%s is not what the tables say: run make golden (-is +want):\n%s", name, diff)
		}
	}
}

const legend = `- **yes**: the setting has the effect that Kubernetes documents. If a part of the effect is missing, the row says so.
- **no**: the setting has an effect in Kubernetes' kubelet, but not in Wherry. Wherry logs a notice at its start if the configured value, or
  Kubernetes' default, would have an effect.
- **nothing to do**: Wherry accepts the setting, but has nothing that it could change.

`

const refusedLegend = `- **refused**: the setting has an effect in Kubernetes' kubelet, but not in Wherry, and without the effect the node would be less safe than its
  owner believes. A value that would have the effect is an error.
`

// legendOf returns the lines that explain the states of fields or gates (honoured, refused, ...) which occur in a table.
func legendOf(table map[string]fieldUse) string {
	for _, use := range table {
		if use.state == stateRefused {
			return refusedLegend + legend
		}
	}
	return legend
}

func configurationPage() string {
	cfg := baseConfig()
	defaultEviction(&cfg.Kubelet)
	flags := newFlagSet(&cfg)
	flagOf := flags.flagOf()
	types := maps.Collect(leaves(reflect.TypeFor[kubelet.KubeletConfiguration]()))
	var b strings.Builder
	fmt.Fprintf(&b, "# Configuration\n\n<!-- made of the tables in internal/edge/config by make golden -->\n\n"+
		"Wherry reads the same settings as Kubernetes' kubelet %s: flags, a file with a `KubeletConfiguration` (`--config`) and drop-in files\n"+
		"(`--config-dir`). Flags override drop-in files, drop-in files override the file, and the file overrides the defaults. If a field does not exist\n"+
		"or has a bad value, the agent ends with an error that names the field. [Flags](flags.md) and [feature gates](feature-gates.md) have their own pages.\n\n", KubernetesVersion)
	b.WriteString("## A change while the agent runs\n\nThe agent watches the files of `--config`, `--config-dir` and `--wherry-config`. When the files have stopped changing and are valid, some fields take\n" +
		"effect without a restart; the others keep their values until the agent is restarted. The agent logs both kinds of changes, and sends the events\n" +
		"`ConfigurationChanged` and `ConfigurationNeedsRestart` about its Node. `/configz` shows the values in effect. If the files are not valid, nothing\n" +
		"changes; a log line and the event `InvalidConfiguration` name the file, the line and the field. Flags still override the files.\n" +
		"Kubernetes' kubelet reads its files only at its start.\n\n" +
		"A file may have at most 1 MiB. There may be at most 1,024 drop-in files, with 4 MiB in all.\n\n")
	b.WriteString("## Fields\n\n" + legendOf(fields) + "The last column says when a change of the field takes effect while the agent runs (live), or why the change needs a restart of the agent.\n\n" +
		"| field | flag | default | works | remark | when a change takes effect |\n|---|---|---|---|---|---|\n")
	for _, path := range slices.Sorted(maps.Keys(fields)) {
		usual := ""
		if v, ok := lookup(reflect.ValueOf(&cfg.Kubelet), path); ok && !v.IsZero() {
			usual = "`" + printed(v) + "`"
		} else if types[path].Kind() == reflect.Bool {
			usual = "`false`"
		}
		named := ""
		if f := flagOf[path]; f != "" {
			named = "`--" + f + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", path, named, cell(usual), fields[path].state, cell(fields[path].why), changes[path])
	}
	b.WriteString("\n## Settings of the kernel\n\nWith `protectKernelDefaults: false` (the default) the agent of a real node sets these kernel settings at each start, and logs a warning for those\n" +
		"that the kernel does not let it set. With `true` it sets nothing, and refuses to start if a setting has another value. The agent that\n" +
		"`wherry run` starts neither sets nor checks them.\n\n| setting | value |\n|---|---|\n")
	for _, s := range KernelSettings() {
		fmt.Fprintf(&b, "| `%s` | `%s` |\n", s.Name, s.Value)
	}
	return b.String()
}

// flagsPage returns the page with every flag of the agent: its value, its default, and whether it is honoured.
func flagsPage() string {
	cfg := baseConfig()
	defaultEviction(&cfg.Kubelet)
	flags := newFlagSet(&cfg)
	var b strings.Builder
	fmt.Fprintf(&b, "# Flags of `wherry kubelet`\n\n<!-- made of the tables in internal/edge/config by make golden -->\n\n"+
		"`wherry kubelet` has the flags of Kubernetes' kubelet %s, and some of its own. If a flag sets a field of the\n"+
		"`KubeletConfiguration`, it overrides the file; [configuration.md](configuration.md) lists the fields. `wherry kubelet --help` prints\n"+
		"the same list of flags, and so does the manual page, which `wherry man DIR` writes.\n\n", KubernetesVersion)
	b.WriteString("The column \"honoured\" says whether a flag works:\n\n" + legendOf(fields) + "| flag | value | default | honoured | field | what it does |\n|---|---|---|---|---|---|\n")
	flags.VisitAll(func(f *pflag.Flag) {
		if _, gone := flags.removed[f.Name]; gone {
			return
		}
		path := flags.field[f.Name]
		use, field := fields[path], ""
		if path != "" {
			field = "`" + path + "`"
		} else if why := idleFlags[f.Name]; why != "" {
			use = notHonoured(why)
		}
		what := f.Usage
		if use.why != "" && !strings.Contains(what, use.why) {
			what += ". In Wherry: " + use.why
		}
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" && f.Shorthand != f.Name {
			name += ", `-" + f.Shorthand + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", name, valueOf(f), cell(usualOf(flags, f)), use.state, field, cell(what))
	})
	b.WriteString("\n## Flags of the cAdvisor inside Kubernetes' kubelet\n\nThe agent accepts these flags. They have no effect, because the agent has no cAdvisor and measures at each request; at its start it logs which of them are set.\n\n" +
		"| flag | honoured |\n|---|---|\n")
	for _, name := range slices.Sorted(slices.Values(cadvisorFlags)) {
		fmt.Fprintf(&b, "| `--%s` | no |\n", name)
	}
	b.WriteString("\n## Flags that Kubernetes has removed\n\nThe agent accepts these flags, so that old start scripts keep working, and logs at its start what to use instead. Flags that excluded\n" +
		"pods (`--allow-privileged=false`, and `--host-network-sources`, `--host-pid-sources` and `--host-ipc-sources` with values other than `*`) are errors.\n\n" +
		"| flag | since | instead |\n|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(removedFlags)) {
		fmt.Fprintf(&b, "| `--%s` | %s | %s |\n", name, removedFlags[name].since, cell(removedFlags[name].successor))
	}
	return b.String()
}

// usualOf returns the default of a flag. If the flag sets a field and prints no default of its own, as some flags with map values do,
// usualOf returns the default of the field.
func usualOf(flags *flagSet, f *pflag.Flag) string {
	usual := f.DefValue
	if path := flags.field[f.Name]; path != "" && (usual == "" || usual == "[]") {
		if v, ok := lookup(reflect.ValueOf(&flags.cfg.Kubelet), path); ok && !v.IsZero() {
			usual = printed(v)
		}
	}
	if usual == "" || usual == "[]" {
		return ""
	}
	return "`" + usual + "`"
}

// unknownType marks a flag type that valueOf does not know.
const unknownType = "UNKNOWN TYPE "

// valueOf returns the type of a flag's value in words.
func valueOf(f *pflag.Flag) string {
	words := map[string]string{
		"string": "text", "stringSlice": "list", "bool": "true or false", "int": "number", "int32": "number", "int64": "number", "duration": "duration", "quantity": "quantity",
		"mapStringBool": "Name=true,...", "mapStringString": "key=value,...", "colonSeparatedMultimapStringString": "key:value,...",
		"taints": "key=value:Effect,...", "reserved-memory": "node:resource=amount;...", "Level": "number", "pattern=N,...": "pattern=N,...", "version": "true, false or raw",
	}
	if w := words[f.Value.Type()]; w != "" {
		return w
	}
	return unknownType + f.Value.Type()
}

func gatesPage() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Feature gates\n\n<!-- made of the tables in internal/edge/config by make golden -->\n\n"+
		"`featureGates` (`--feature-gates`) takes every gate of Kubernetes %s, and `AllAlpha` and `AllBeta`. A name that does not\n"+
		"exist is an error, and so is the contrary of a gate that Kubernetes has locked.\n\n## Gates of a node agent\n\n", KubernetesVersion)
	b.WriteString(legendOf(gateUses) + "| gate | stage | default | works | |\n|---|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(gateUses)) {
		use, fact := gateUses[name], gateFacts[name]
		fmt.Fprintf(&b, "| `%s` | %s | `%t` | %s | %s |\n", name, fact.stage, fact.on, use.state, cell(use.why))
	}
	var locked, others []string
	for _, name := range slices.Sorted(maps.Keys(gateFacts)) {
		switch _, own := gateUses[name]; {
		case own:
		case gateFacts[name].locked:
			locked = append(locked, fmt.Sprintf("`%s` (%t)", name, gateFacts[name].on))
		default:
			others = append(others, "`"+name+"`")
		}
	}
	b.WriteString("\n## Gates of other components\n\nAccepted, and without effect on a node agent: " + strings.Join(others, ", ") + ".\n")
	b.WriteString("\n## Locked gates\n\nKubernetes accepts no other value than this: " + strings.Join(locked, ", ") + ".\n")
	return b.String()
}

// cell escapes text for a table cell.
func cell(s string) string { return strings.ReplaceAll(s, "|", "\\|") }

// The flag --runtime-cgroups works, so no notice says that it has no effect.
func TestRuntimeCgroupsIsNotReportedAsIdle(t *testing.T) {
	t.Parallel()
	cfg, notices, err := Load([]string{"--runtime-cgroups=/system.slice/containerd.service"})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.RuntimeCgroups != "/system.slice/containerd.service" {
		t.Errorf("read as %q", cfg.RuntimeCgroups)
	}
	for _, n := range notices {
		if n.Subject == "--runtime-cgroups" {
			t.Errorf("a start logs %q", n.Message)
		}
	}
}
