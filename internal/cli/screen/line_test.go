package screen

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in          string
		most        int
		want, ascii string
	}{
		{"name", 4, "name", "name"},
		{"name", 3, "na…", "na~"},
		{"name", 1, "…", "~"},
		{"name", 0, "", ""},
		{"name", -1, "", ""},
		{"日本語", 5, "日本…", "???"},
		{"日本語", 4, "日…", "???"}, // the second character has two columns and does not fit beside the mark
		{"e\u0301e", 2, "e\u0301e", "e~"},
		{"a\x1b[2Jb\n", 100, `a\x1b[2Jb\n`, `a\x1b[2Jb\n`},
	} {
		if got := (Mode{}).Cut(c.in, c.most); got != c.want {
			t.Errorf("%q in %d columns: %q, want %q", c.in, c.most, got, c.want)
		}
		if got := (Mode{ASCII: true}).Cut(c.in, c.most); got != c.ascii {
			t.Errorf("%q in %d columns of ASCII: %q, want %q", c.in, c.most, got, c.ascii)
		}
	}
	if got := (Mode{}).Cell("日", 4) + "|" + (Mode{}).Right("日", 4); got != "日  |  日" {
		t.Errorf("%q", got)
	}
}

// A text of characters without a width is bounded, too.
func TestTextIsBounded(t *testing.T) {
	t.Parallel()
	if n := len((Mode{}).Text("a" + strings.Repeat("\u0301", 1<<20))); n > 4*longest {
		t.Errorf("%d bytes", n)
	}
	if n := len((Mode{}).Text(strings.Repeat("\x01", 1<<20))); n > 4*longest {
		t.Errorf("%d bytes", n)
	}
}

func TestEncode(t *testing.T) {
	t.Parallel()
	lines := []Line{{{"ab", Good}, {"cd", Plain}}, nil, {{"\x1b[2J", Bad}, {"日本語", Marked}}}
	for _, c := range []struct {
		mode Mode
		size Size
		want string
	}{
		{Mode{Colour: true}, Size{20, 4}, "\x1b[H\x1b[32mab\x1b[0mcd\x1b[K\r\n\x1b[K\r\n\x1b[1;31m\\x1b[2J\x1b[0m\x1b[7m日本語\x1b[0m\x1b[K\r\n\x1b[J"},
		{Mode{}, Size{4, 2}, "\x1b[Habcd\r\n\x1b[K"}, // no erasure after a line that fills the columns
		{Mode{ASCII: true}, Size{3, 3}, "\x1b[Hab~\r\n\x1b[K\r\n\x1b[1m\\x~\x1b[0m"},
		{Mode{}, Size{3, 0}, "\x1b[H"},
	} {
		if diff := cmp.Diff(c.want, c.mode.Encode(lines, c.size)); diff != "" {
			t.Errorf("%+v %+v: %s", c.mode, c.size, diff)
		}
	}
}

func TestModeOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		env  map[string]string
		mode Mode
		ok   bool
	}{
		{map[string]string{"TERM": "xterm", "LANG": "en_US.UTF-8"}, Mode{Colour: true}, true},
		{map[string]string{"TERM": "xterm", "LANG": "en_US.UTF-8", "LC_ALL": "C"}, Mode{ASCII: true, Colour: true}, true},
		{map[string]string{"TERM": "xterm", "LC_CTYPE": "C.utf8", "NO_COLOR": "1"}, Mode{}, true},
		{map[string]string{"TERM": "dumb", "LANG": "de_DE.utf8"}, Mode{Colour: true}, false},
		{map[string]string{}, Mode{ASCII: true, Colour: true}, false},
	} {
		if mode, ok := ModeOf(func(name string) string { return c.env[name] }); mode != c.mode || ok != c.ok {
			t.Errorf("%v: %+v, %t", c.env, mode, ok)
		}
	}
}

// decode finds the same keys however the bytes come in.
func TestDecode(t *testing.T) {
	t.Parallel()
	const in = "q\x1b[\x0c\x1b[1;\x1b[A\x1b[B\x1bOC\x1b[D\x1b[5~\x1b[6~\x1b[Z\t\x03\x1a\x0c\x1b[1;5Cü\x1b[99999999999999999;;;;;;;;xp"
	want := []Key{"q", KeyRedraw, KeyUp, KeyDown, KeyRight, KeyLeft, KeyPageUp, KeyPageDown, KeyBackTab, KeyTab, KeyInterrupt, KeySuspend, KeyRedraw}
	for piece := 1; piece < 20; piece++ {
		var got []Key
		rest := ""
		for left := in; left != ""; {
			n := min(piece, len(left))
			var keys []Key
			keys, rest = decode(rest + left[:n])
			left = left[n:]
			if len(rest) > longestSequence+piece {
				t.Fatalf("%d bytes are held", len(rest))
			}
			got = append(got, keys...)
		}
		if len(got) < len(want) || !slices.Equal(got[:len(want)], want) || got[len(got)-1] != "p" || rest != "" {
			t.Errorf("in pieces of %d: %q, rest %q", piece, got, rest)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("\x1b[A\x1b[1;5Cq")
	f.Fuzz(func(t *testing.T, in string) {
		if _, rest := decode(in); rest != "" && !strings.HasSuffix(in, rest) {
			t.Errorf("%q is no end of %q", rest, in)
		}
	})
}
