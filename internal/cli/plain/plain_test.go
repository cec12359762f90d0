package plain

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

// hostile is text that a container may write into a message, and that a terminal must not get.
const hostile = "\x1b]0;title\a\x1b[2Jgone\r\nfake row\x9b31m\u202eevil\x00\u2028"

// unsafe returns what in s may still control a terminal: a control character, or a note that s is not UTF-8. It returns "" if there is
// nothing.
func unsafe(s string) string {
	for _, r := range s {
		if r != '\n' && r != '\t' && Controls(r) {
			return string(r)
		}
	}
	if !utf8.ValidString(s) {
		return "bytes that are no UTF-8"
	}
	return ""
}

func TestText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, text, lines string }{
		{"späte Grüße 日本", "späte Grüße 日本", "späte Grüße 日本"},
		{"two\n\tlines", `two\n\tlines`, "two\n\tlines"},
		{hostile, `\x1b]0;title\a\x1b[2Jgone\r\nfake row\x9b31m\u202eevil\x00\u2028`, `\x1b]0;title\a\x1b[2Jgone\r` + "\n" + `fake row\x9b31m\u202eevil\x00\u2028`},
	} {
		if got := Text(c.in); got != c.text {
			t.Errorf("Text(%q) = %q", c.in, got)
		}
		if got := Lines(c.in); got != c.lines {
			t.Errorf("Lines(%q) = %q", c.in, got)
		}
	}
	if got := JSON("a\u202eb\n"); got != `a\u202eb`+"\n" {
		t.Errorf("JSON: %q", got)
	}
}

// On a terminal, logs keep their colours but no other control sequence, also if a sequence is split over several writes.
func TestLogsOnATerminal(t *testing.T) {
	t.Parallel()
	text := "\x1b[1;31mred\x1b[0m ü\r\n" + hostile + "\x1b[" + strings.Repeat("1", 100) + "m\tend\n"
	for piece := 1; piece < 9; piece++ {
		var b bytes.Buffer
		w := &terminalWriter{w: &b}
		for rest := []byte(text); len(rest) > 0; {
			n := min(piece, len(rest))
			if m, err := w.Write(rest[:n]); err != nil || m != n {
				t.Fatal(m, err)
			}
			rest = rest[n:]
		}
		got := b.String()
		coloured, rest, _ := strings.Cut(got, "\r\n")
		if coloured != "\x1b[1;31mred\x1b[0m ü" || !strings.HasSuffix(got, "\tend\n") {
			t.Errorf("in pieces of %d: %q", piece, got)
		}
		rest = strings.ReplaceAll(rest, "\r\n", "\n") // a carriage return before a newline is harmless
		if bad := unsafe(rest); bad != "" {
			t.Errorf("in pieces of %d: passes on %q: %q", piece, bad, rest)
		}
	}
	var b bytes.Buffer
	if Terminal(&b) != &b {
		t.Error("a writer that is no terminal must get the container's original bytes")
	}
}
