package replay

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// Script writes the turn as a script for the tests of package decide (testdata/decide/*.txt). Each "turn-of" line of the script has
// one part of the turn's input. The command "turn" follows, with the plan that this version decides. A user may append further
// commands of the script language, such as +10s or settle.
func (t *Turn) Script() (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "# Turn of pod %s/%s, exported by %s. Write here the sentence of the documentation that the plan follows.\n",
		word(t.Namespace), word(t.Name), word(t.Agent))
	if was, now := t.Plan, t.Again(); len(was) > 0 && !slices.Equal(was, now) {
		b.WriteString("# The version that exported the turn decided otherwise:\n")
		for _, l := range was {
			fmt.Fprintf(&b, "#   %s\n", word(l))
		}
	}
	in := t.Restore()
	for _, part := range []struct {
		name  string
		value any
	}{
		{"now", in.Now}, {"pod", in.Pod}, {"lastGrace", in.LastGrace}, {"observed", in.Observed}, {"memory", t.Input.Memory}, {"probed", in.Probed},
		{"inFlight", in.InFlight}, {"stale", in.Stale}, {"hashes", in.Hashes}, {"sizes", in.Sizes}, {"node", in.Node}, {"policy", *in.Policy},
	} {
		text, err := json.Marshal(part.value)
		if err != nil {
			return "", fmt.Errorf("write %s of the turn: %w", part.name, err)
		}
		if s := string(text); s != "null" && s != "false" {
			fmt.Fprintf(&b, "turn-of %s %s\n", part.name, inOneWord(s))
		}
	}
	plan := decide.Decide(in)
	b.WriteString("turn\n")
	for _, l := range PlanLines(&plan, in.Now) {
		fmt.Fprintf(&b, "    %s\n", l)
	}
	return b.String(), nil
}

// PlanLines writes a plan in the format in which the command "turn" of a script prints it.
func PlanLines(p *decide.Plan, now time.Time) []string {
	var out []string
	for _, a := range p.Do {
		out = append(out, a.String())
	}
	for _, a := range p.Cancel {
		out = append(out, "cancel "+a.String())
	}
	wake := ""
	if !p.WakeAt.IsZero() {
		wake = fmt.Sprintf("; wake +%s", p.WakeAt.Sub(now))
	}
	return append(out, fmt.Sprintf("= %s: %s%s", p.Phase, p.Why, wake))
}

// ReadPart parses one part of a turn's input into in. name and text are the two words after "turn-of" in a line that Script wrote.
func ReadPart(in *decide.Input, name, text string) error {
	var mem memory
	into, known := map[string]any{
		"now": &in.Now, "pod": &in.Pod, "lastGrace": &in.LastGrace, "observed": &in.Observed, "memory": &mem, "probed": &in.Probed,
		"inFlight": &in.InFlight, "stale": &in.Stale, "hashes": &in.Hashes, "sizes": &in.Sizes, "node": &in.Node, "policy": &in.Policy,
	}[name]
	if !known {
		return fmt.Errorf("a turn has no part %q", name)
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		return fmt.Errorf("read %s of the turn: %w", name, err)
	}
	if name == "memory" {
		restored := mem.restored()
		in.Memory = &restored
	}
	return nil
}

// inOneWord writes JSON without blanks, so that a script reads it as one word.
func inOneWord(text string) string { return strings.ReplaceAll(text, " ", `\u0020`) }

// word makes a text from a file safe for a comment line of a script: it joins all lines, and removes control characters.
func word(text string) string { return pod.Text(strings.Join(strings.Fields(text), " ")) }
