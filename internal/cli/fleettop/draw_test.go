package fleettop

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/wherry-node/wherry/agent/fleet"
	"github.com/wherry-node/wherry/internal/cli/fleetctl"
	"github.com/wherry-node/wherry/internal/cli/plain"
	"github.com/wherry-node/wherry/internal/cli/screen"
)

var update = flag.Bool("update", false, "rewrite the expected screens in testdata")

// began is when the fleet of the tests began.
var began = time.Date(2026, 11, 26, 15, 0, 0, 0, time.UTC)

// at returns the state of a fleet of 1,000 nodes that join, after so many seconds: 50 nodes and 200 pods more each second.
func at(second int) *fleetctl.Watched {
	joined := min(1000, 50*second)
	running := min(5000, 200*second)
	w := &fleetctl.Watched{State: fleetctl.State{
		Status: fleet.Status{
			Name: "fleet", Began: began, Running: time.Duration(second) * time.Second, JoinWindow: 64,
			Nodes:  fleet.Nodes{Want: 1000, Present: min(1000, joined+64), Ready: joined, Up: max(0, joined-20), Joining: min(64, 1000-joined), Partitioned: min(joined, 17), Crashed: min(joined, 2), Failed: min(joined, 1)},
			Pods:   fleet.Pods{Running: running, Ready: running - running/50, Pending: 5000 - running, Starts: running, Deletions: 3*second + 20*(second/4)},
			Leases: fleet.Lateness{P50: 4 * time.Millisecond, P99: time.Duration(20+second%7*3) * time.Millisecond},
			Requests: fleet.Requests{
				Total: uint64(900 * second), Failed: uint64(second / 4), Waited: time.Duration(second) * 900 * 12 * time.Millisecond,
				ByVerb: map[string]uint64{"GET": uint64(100 * second), "WATCH": uint64(second / 10), "POST": uint64(200 * second), "PUT": uint64(150 * second), "PATCH": uint64(450 * second), "DELETE": 0},
			},
			Joins: fleet.Joins{Ended: joined, Took: time.Duration(joined) * 800 * time.Millisecond, Waited: time.Duration(joined) * 500 * time.Millisecond},
			Groups: []fleet.GroupStatus{
				{Name: "small", Nodes: fleet.Nodes{Want: 900, Present: 900, Ready: 850, Up: 830, Joining: 50, Partitioned: 17, Crashed: 2, Failed: 1}, Pods: 4200},
				{Name: "big", Nodes: fleet.Nodes{Want: 100, Present: 100, Ready: 100, Up: 100}, Pods: 800},
			},
			Faults: []fleet.FaultStatus{
				{Kind: fleet.FaultPartition, Nodes: 17, Since: began.Add(3 * time.Second), Until: began.Add(100 * time.Second)},
				{Kind: fleet.FaultRuntime, Text: "PullImage takes 30s longer", Nodes: 1, Since: began.Add(2 * time.Second)},
			},
			Scenarios: []fleet.ScenarioStatus{
				{Name: "faults.yaml", Began: began, Faults: 12, Happened: 3, Failed: 1, Last: "crash 1", Next: "registry down", NextAt: began.Add(42 * time.Second)},
				{Name: "first.yaml", Began: began, Faults: 2, Happened: 2, Ended: true},
			},
		},
		Server: "https://127.0.0.1:6443", Wanted: 5000, Memory: 512<<20 + 400<<10*uint64(second), MemoryPerNode: 430 << 10, Goroutines: 5012, GoroutinesPerNode: 4.9,
		CPUSeconds: 0.8 * float64(second),
	}}
	w.Attention = []fleet.NodeStatus{
		{Name: "fleet-small-9", Group: "small", State: "failed", Pods: 5, Reason: "listen tcp 127.0.0.1:0: too many open files"},
		{Name: "fleet-small-7", Group: "small", State: "crashed", Pods: 5, Faults: []fleet.FaultKind{fleet.FaultCrash}},
		{Name: "fleet-small-8", Group: "small", State: "crashed", Pods: 5, Faults: []fleet.FaultKind{fleet.FaultCrash, fleet.FaultRuntime}},
	}
	for i := range 17 {
		w.Attention = append(w.Attention, fleet.NodeStatus{Name: fmt.Sprintf("fleet-small-%d", 100+i), Group: "small", State: "partitioned", Pods: 5, Ready: 5, Faults: []fleet.FaultKind{fleet.FaultPartition}})
	}
	w.Attention = append(w.Attention, fleet.NodeStatus{Name: "fleet-big-3", Group: "big", State: "ready", Pods: 8, Ready: 8, Overdue: 3200 * time.Millisecond})
	w.AttentionAll = len(w.Attention)
	return w
}

// hostile is a text that would move the cursor, set the title and look like other lines, with characters of no width and of two columns.
const hostile = "\x1b]0;title\a\x1b[2J\x1b[31mname\r\nfleet-1  ready\t\u202e日本語\u0301\u0301\u200b\x9b1m\xff"

// spoil puts hostile texts wherever the answer of a fleet has a text.
func spoil(w *fleetctl.Watched) {
	w.Name, w.Server, w.Kubeconfig = hostile, hostile, hostile
	for i := range w.Groups {
		w.Groups[i].Name = hostile
	}
	for i := range w.Faults {
		w.Faults[i].Kind, w.Faults[i].Text = hostile, hostile
	}
	for i := range w.Scenarios {
		p := &w.Scenarios[i]
		p.Name, p.Last, p.Next = hostile, hostile, hostile
	}
	for i := range w.Attention {
		n := &w.Attention[i]
		n.Name, n.Group, n.State, n.Reason, n.Faults = hostile, hostile, hostile, hostile, []fleet.FaultKind{hostile}
	}
	w.Requests.ByVerb[hostile] = 5
}

// view returns the view after so many seconds.
func view(seconds int, size screen.Size, change func(*View)) *View {
	v := &View{Mode: screen.Mode{Colour: true}, Size: size, Past: &History{}, Every: time.Second}
	for s := range seconds + 1 {
		v.Now = at(s)
		v.Past.Add(&v.Now.State)
	}
	if change != nil {
		change(v)
	}
	return v
}

// What the screen shows is what the files in testdata have.
func TestScreens(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		second int
		size   screen.Size
		change func(*View)
	}{
		{"wide", 17, screen.Size{Columns: 140, Rows: 44}, nil},
		{"usual", 17, screen.Size{Columns: 100, Rows: 30}, nil},
		{"small", 17, screen.Size{Columns: 80, Rows: 24}, nil},
		{"narrow", 17, screen.Size{Columns: 40, Rows: 30}, nil},
		{"low", 17, screen.Size{Columns: 100, Rows: 10}, nil},
		{"tiny", 17, screen.Size{Columns: 20, Rows: 5}, nil},
		{"first", 0, screen.Size{Columns: 80, Rows: 24}, nil},
		{"ascii", 17, screen.Size{Columns: 100, Rows: 30}, func(v *View) { v.Mode.ASCII = true }},
		{"groups", 17, screen.Size{Columns: 80, Rows: 24}, func(v *View) { v.List = ListGroups }},
		{"faults", 17, screen.Size{Columns: 100, Rows: 26}, func(v *View) { v.List = ListFaults }},
		{"scrolled", 17, screen.Size{Columns: 80, Rows: 24}, func(v *View) { v.Scroll = 9 }},
		{"end", 17, screen.Size{Columns: 80, Rows: 24}, func(v *View) { v.Scroll = 1 << 40 }},
		{"paused", 17, screen.Size{Columns: 80, Rows: 24}, func(v *View) { v.Paused = true }},
		{"lost", 17, screen.Size{Columns: 80, Rows: 24}, func(v *View) {
			v.Lost, v.Silent = "no fleet runs at /run/wherry/fleet-fleet.sock", 75*time.Second
		}},
		{"calm", 40, screen.Size{Columns: 80, Rows: 24}, func(v *View) {
			v.Now.Attention, v.Now.AttentionAll, v.Now.Faults, v.Now.Scenarios = nil, 0, nil, nil
			v.Now.Nodes = fleet.Nodes{Want: 1000, Present: 1000, Ready: 998, Up: 997, Crashed: 3} // a node that has crashed does not join
		}},
		{"leaving", 17, screen.Size{Columns: 80, Rows: 24}, func(v *View) {
			v.Now.Nodes = fleet.Nodes{Want: 200, Present: 900, Ready: 200, Up: 200, Leaving: 700}
			v.Now.Pods = fleet.Pods{Running: 900, Ready: 900, Succeeded: 4000, Failed: 100}
		}},
		{"hostile", 17, screen.Size{Columns: 100, Rows: 30}, func(v *View) { spoil(v.Now) }},
		{"hostile-ascii", 17, screen.Size{Columns: 100, Rows: 26}, func(v *View) {
			spoil(v.Now)
			v.Mode.ASCII, v.List = true, ListFaults
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			v := view(c.second, c.size, c.change)
			lines, _ := Draw(v)
			var b strings.Builder
			for _, l := range lines {
				b.WriteString(strings.TrimRight(l.String(), " ") + "\n")
			}
			file := filepath.Join("testdata", c.name+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), b.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// At every size, with every list and with hostile names, the lines fit, and the terminal gets no control characters but those of the screen.
func TestEverySize(t *testing.T) {
	t.Parallel()
	for columns := 0; columns < 130; columns += 1 + columns/25 {
		for _, rows := range []int{0, 1, 2, 3, 4, 5, 7, 10, 15, 20, 24, 30, 60} {
			for list := range lists {
				size := screen.Size{Columns: columns, Rows: rows}
				v := view(3, size, func(v *View) {
					spoil(v.Now)
					v.List, v.Scroll, v.Lost, v.Mode.ASCII = list, columns%23, hostile, columns%2 == 0
				})
				lines, scroll := Draw(v)
				if len(lines) > rows || scroll < 0 {
					t.Fatalf("%+v: %d lines, scroll %d", size, len(lines), scroll)
				}
				for _, l := range lines {
					text := l.String()
					if w := screen.Width(text); w > columns || strings.ContainsFunc(text, plain.Controls) || !utf8.ValidString(text) {
						t.Fatalf("%+v: %d columns: %q", size, w, text)
					}
					if v.Mode.ASCII && strings.ContainsFunc(text, func(r rune) bool { return r > '~' }) {
						t.Fatalf("%+v: not ASCII: %q", size, text)
					}
				}
			}
		}
	}
}

// The screen of an answer with numbers that make no sense is drawn, too.
func TestAbsurdNumbers(t *testing.T) {
	t.Parallel()
	for _, n := range []int{-1 << 62, -1, 1, 1 << 62} {
		v := view(3, screen.Size{Columns: 100, Rows: 40}, func(v *View) {
			s := *v.Now
			s.Nodes = fleet.Nodes{Want: n, Present: n, Ready: n, Up: n, Joining: n, Leaving: n, Crashed: n, Partitioned: n, Failed: n}
			s.Pods = fleet.Pods{Running: n, Pending: n, Succeeded: n, Failed: n, Starts: n, Deletions: n}
			s.Joins = fleet.Joins{Ended: n, Took: time.Duration(n), Waited: time.Duration(n), Left: n}
			s.Requests = fleet.Requests{Total: 1 << 63, Failed: 1 << 63, Waited: time.Duration(n)}
			s.Leases = fleet.Lateness{P50: time.Duration(n), P99: time.Duration(n), Overdue: time.Duration(n), Failed: n}
			s.Running += time.Second
			s.CPUSeconds, s.Wanted, s.Goroutines, s.Memory = -1e300, n, n, 1<<63
			s.Scenarios = []fleet.ScenarioStatus{{Faults: n, Happened: n, Failed: n, Next: "x"}}
			v.Now = &s
			v.Past.Add(&s.State)
		})
		for v.List = range lists {
			if lines, _ := Draw(v); len(lines) != 40 {
				t.Errorf("%d lines", len(lines))
			}
		}
	}
}

func TestBar(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		size, whole int
		counts      [3]int
		want        string
	}{
		{10, 10, [3]int{10, 0, 0}, "##########"},
		{10, 10, [3]int{5, 0, 0}, "#####....."},
		{10, 1000, [3]int{998, 1, 1}, "########+x"},
		{10, 1000, [3]int{1, 0, 0}, "#........."},
		{10, 0, [3]int{}, ".........."},
		{10, 3, [3]int{1, 1, 1}, "####+++xxx"},
		{2, 3, [3]int{1, 1, 1}, "+x"},
		{0, 3, [3]int{1, 1, 1}, ""},
		{10, 5, [3]int{10, 10, 0}, "#####+++++"}, // more than the whole
		{4, 4, [3]int{-3, 4, 0}, "++++"},
	} {
		parts := []part{{"a", c.counts[0], full, screen.Good}, {"b", c.counts[1], medium, screen.Busy}, {"c", c.counts[2], crossed, screen.Bad}}
		if got := bar(screen.Mode{ASCII: true}, c.size, c.whole, parts).String(); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

func TestSpark(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		size   int
		values []float64
		want   string
	}{
		{5, nil, "     "},
		{5, []float64{0, 0}, "   __"},
		{3, []float64{9, 0, 1, 100}, "_.#"},
		{8, []float64{0, 1, 2, 3, 4, 5, 6, 7}, "_.:-=+*#"},
		{-1, []float64{1}, ""},
	} {
		if got := spark(screen.Mode{ASCII: true}, c.size, c.values); got != c.want {
			t.Errorf("%v: %q, want %q", c.values, got, c.want)
		}
	}
	if got := spark(screen.Mode{}, 3, []float64{0, 1, 2}); got != "▁▅█" {
		t.Errorf("%q", got)
	}
}

// A history has rates, and begins anew with another fleet.
func TestHistory(t *testing.T) {
	t.Parallel()
	h := &History{}
	for s := range 300 {
		h.Add(&at(s).State)
		h.Add(&at(s).State) // the same answer again says nothing new
	}
	if len(h.samples) != mostSamples {
		t.Errorf("%d samples", len(h.samples))
	}
	if got := h.rate(smooth, func(s *sample) float64 { return s.requests }); got != 900 {
		t.Errorf("%g requests a second", got)
	}
	if got := h.wait(); got != 12*time.Millisecond {
		t.Errorf("a request waits %s", got)
	}
	if _, ok := h.share(); ok {
		t.Error("a share of joins although no node joins any more")
	}
	early := &History{}
	for s := range 10 {
		early.Add(&at(s).State)
	}
	if part, ok := early.share(); !ok || part != 0.625 {
		t.Errorf("share %g, %t", part, ok)
	}
	other := at(400).State
	other.Began = began.Add(time.Hour)
	if h.Add(&other); len(h.samples) != 0 {
		t.Errorf("%d samples of another fleet", len(h.samples))
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		count(0): "0", count(999): "999", count(1000): "1,000", count(-1234567): "-1,234,567",
		long(59 * time.Second): "59s", long(61 * time.Second): "1m 1s", long(3 * time.Hour): "3h 0m", long(50 * time.Hour): "2d 2h",
		short(0): "0s", short(1234 * time.Microsecond): "1ms", short(1234 * time.Millisecond): "1.2s", short(90 * time.Second): "1m 30s",
		perSecond(1.25): "1.2 /s", perSecond(1234): "1,234 /s", amount(5 << 20): "5 MiB", amount(3 << 29): "1.50 GiB", amount(2048): "2 KiB",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
