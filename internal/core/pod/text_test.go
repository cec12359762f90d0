package pod

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func checkText(t *testing.T, in, out string, limit int) {
	t.Helper()
	if len(out) > limit || !utf8.ValidString(out) {
		t.Errorf("%d bytes became %d, valid UTF-8: %v", len(in), len(out), utf8.ValidString(out))
	}
	if i := strings.IndexFunc(out, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }); i >= 0 {
		t.Errorf("a control character %q is left", out[i])
	}
	if len(in) <= limit && sayable(in) && out != in {
		t.Errorf("a text with nothing wrong was changed: %q", out)
	}
}

// FuzzText checks that the result for any text is bounded, valid UTF-8, and without commands for a terminal.
func FuzzText(f *testing.F) {
	for _, s := range []string{"", "plain", "two\nlines\t", "\x1b[2J\x1b]0;owned\x07", "\xff\xfe", strings.Repeat("é", 3000), "a" + strings.Repeat("船", 3000),
		strings.Repeat("\xff", 5000), strings.Repeat("x", TextBytes), strings.Repeat("x", TextBytes+1), "\u009b31m", "\u0085\x7f"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		checkText(t, s, Text(s), TextBytes)
		checkText(t, s, Cut(s, 100), 100)
		if Text(Text(s)) != Text(s) {
			t.Error("what is sayable is not left as it is")
		}
		err := fmt.Errorf("verb object: %s: %w", s, io.ErrUnexpectedEOF)
		if bounded := TextError(err); !errors.Is(bounded, io.ErrUnexpectedEOF) {
			t.Error("the error is another one")
		} else {
			checkText(t, err.Error(), bounded.Error(), TextBytes)
		}
	})
}

// TestHugeTextIsCut checks that Text cuts a text of 16 MiB to 4 KiB, and allocates at most 1 MiB for that.
func TestHugeTextIsCut(t *testing.T) {
	for name, unit := range map[string]string{"text": "x", "binary": "\xff\x00\x1b", "wide": "船"} {
		s := strings.Repeat(unit, 16<<20/len(unit))
		out := Text(s)
		checkText(t, s, out, TextBytes)
		if !strings.HasSuffix(out, "...") || len(out) < TextBytes-6 {
			t.Errorf("%s: %d bytes, end %q", name, len(out), out[len(out)-5:])
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		Text(s)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
			t.Errorf("%s: %d bytes allocated for a text of %d", name, n, TextBytes)
		}
	}
}
