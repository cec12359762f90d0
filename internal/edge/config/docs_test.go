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

// The page shows the default of each flag that has one of its own, and the type of each flag's value.
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

const legend = `- **yes**: it has the effect that Kubernetes documents. If a part is missing, the row says so.
- **no**: it has an effect in Kubernetes' kubelet, but not in Wherry. Wherry logs a notice at its start if the configured value, or
  Kubernetes' default, would have an effect.
- **nothing to do**: Wherry has nothing that it could change.

`

const refusedLegend = `- **refused**: it has an effect in Kubernetes' kubelet, but not in Wherry, and without it the node would be less safe than its owner
  believes. A value that would have an effect is an error.
`

// legendOf explains the states that occur in a table.
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
		"Wherry takes the flags of Kubernetes' kubelet %s, its `KubeletConfiguration` (`--config`) and drop-in files\n"+
		"(`--config-dir`). Flags override drop-in files, drop-in files override the file, and the file overrides the defaults. A field that does not\n"+
		"exist, or a bad value, is an error that names it. [Flags](flags.md) and [feature gates](feature-gates.md) have pages of their own.\n\n", KubernetesVersion)
	b.WriteString("## A change while the agent runs\n\nThe files of `--config`, `--config-dir` and `--wherry-config` are watched. Some fields change as soon as\n" +
		"the files are valid and have settled; the others keep their values until the agent is restarted. Both are logged and reported by events\n" +
		"on the node (`ConfigurationChanged`, `ConfigurationNeedsRestart`), and `/configz` shows what is in effect. Files that are not valid\n" +
		"change nothing; a log line and the event `InvalidConfiguration` name the file, the line and the field. Flags override the files\n" +
		"then as well. Kubernetes' kubelet reads its files at its start only.\n\n" +
		"A file may have 1 MiB, the drop-in files 4 MiB together; there may be 1,024 of them.\n\n")
	b.WriteString("## Fields\n\n" + legendOf(fields) + "The last column says when a change takes effect while the agent runs, or why it waits for a restart.\n\n" +
		"| field | flag | default | works | | a change |\n|---|---|---|---|---|---|\n")
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
	b.WriteString("\n## Settings of the kernel\n\nWith `protectKernelDefaults: false` (the default) a real node sets these at each start, and warns of those that the kernel\n" +
		"does not let it set. With `true` it sets nothing, and does not start if one of them has another value. The agent that\n" +
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
		"These are the flags of Kubernetes' kubelet %s, and Wherry's own. A flag that sets a field of the\n"+
		"`KubeletConfiguration` overrides the file; [configuration.md](configuration.md) has the fields. `wherry kubelet --help` prints\n"+
		"the same list, and so does its manual page (`wherry man DIR`).\n\n", KubernetesVersion)
	b.WriteString("The column \"honoured\":\n\n" + legendOf(fields) + "| flag | value | default | honoured | field | what it does |\n|---|---|---|---|---|---|\n")
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
			what += ". Here: " + use.why
		}
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" && f.Shorthand != f.Name {
			name += ", `-" + f.Shorthand + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", name, valueOf(f), cell(usualOf(flags, f)), use.state, field, cell(what))
	})
	b.WriteString("\n## Flags of the cAdvisor inside Kubernetes' kubelet\n\nThe agent accepts them without effect, and says so when it starts: it has no cAdvisor and reads statistics on demand.\n\n" +
		"| flag | honoured |\n|---|---|\n")
	for _, name := range slices.Sorted(slices.Values(cadvisorFlags)) {
		fmt.Fprintf(&b, "| `--%s` | no |\n", name)
	}
	b.WriteString("\n## Flags that Kubernetes has removed\n\nThe agent accepts them, so that old files keep working, and says at its start what to use instead. Those that excluded\n" +
		"pods (`--allow-privileged=false`, and `--host-network-sources`, `--host-pid-sources` and `--host-ipc-sources` with other values than `*`) are errors.\n\n" +
		"| flag | since | instead |\n|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(removedFlags)) {
		fmt.Fprintf(&b, "| `--%s` | %s | %s |\n", name, removedFlags[name].since, cell(removedFlags[name].successor))
	}
	return b.String()
}

// usualOf returns the default of a flag. For a flag that sets a field it is the field's default, because some flags print no
// map values.
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

// No notice says that the flag --runtime-cgroups, which works, has no effect.
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
