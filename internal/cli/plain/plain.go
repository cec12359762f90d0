package plain

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// Text makes a text of the cluster, of a container or of the agent safe for a terminal. It escapes characters that move the
// cursor, change colours or titles, or change the direction of text (CVE-2021-25743). It also escapes newlines and tabs, because
// a message must not look like two lines of a table.
func Text(s string) string { return escaped(s, "") }

// Lines does the same as Text, but keeps newlines and tabs.
func Lines(s string) string { return escaped(s, "\n\t") }

// JSON returns the JSON text s with those control characters escaped (as \uXXXX) that JSON allows in a string without an escape.
func JSON(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r != '\n' && Controls(r) && r < 0x10000 {
			fmt.Fprintf(&b, "\\u%04x", r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// escaped escapes the control characters of s except those in keep.
func escaped(s, keep string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, Controls) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			b.WriteString(`\x` + strconv.FormatUint(uint64(s[i]), 16))
		case Controls(r) && !strings.ContainsRune(keep, r):
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// Controls reports whether a terminal does something other than show the character r: C0 and C1 controls, line separators,
// and characters that change the direction of text. Controls cannot see bytes that are not UTF-8. The function escaped
// escapes such bytes too, because a terminal with another encoding may take them for C1 controls.
func Controls(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
}

// Terminal returns a writer for the logs of containers. If w is a terminal, this writer escapes control characters, except
// colours. If w is a file or a pipe, the result is w, which gets the bytes unchanged.
func Terminal(w io.Writer) io.Writer {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return &terminalWriter{w: w}
	}
	return w
}

// terminalWriter escapes control characters, except colours (ESC [ ... m) and newlines. If a text ends within a colour, a
// character or a line end (\r\n), the writer holds these bytes until the next Write.
type terminalWriter struct {
	w    io.Writer
	held []byte
}

// maxColour is the largest length of a colour sequence. A longer one is escaped.
const maxColour = 32

func (t *terminalWriter) Write(b []byte) (int, error) {
	in := append(t.held, b...)
	t.held = nil
	var out strings.Builder
	for len(in) > 0 {
		if n, whole := colour(in); n > 0 {
			if !whole {
				break
			}
			out.Write(in[:n])
			in = in[n:]
			continue
		}
		if !utf8.FullRune(in) {
			break
		}
		_, n := utf8.DecodeRune(in)
		if in[0] == '\r' {
			if len(in) == 1 {
				break
			}
			if in[1] == '\n' { // a newline
				n = 2
				out.WriteString("\r\n")
				in = in[n:]
				continue
			}
		}
		out.WriteString(Lines(string(in[:n])))
		in = in[n:]
	}
	t.held = append([]byte(nil), in...)
	if _, err := io.WriteString(t.w, out.String()); err != nil {
		return 0, err
	}
	return len(b), nil
}

// colour returns the length of a colour sequence at the beginning of b, or 0 if there is none. whole is false if the sequence is
// incomplete.
func colour(b []byte) (n int, whole bool) {
	if b[0] != 0x1b {
		return 0, false
	}
	for i := 1; i < len(b) && i < maxColour; i++ {
		switch c := b[i]; {
		case i == 1 && c == '[', i > 1 && (c >= '0' && c <= '9' || c == ';' || c == ':'):
		case i > 1 && c == 'm':
			return i + 1, true
		default:
			return 0, false
		}
	}
	if len(b) >= maxColour {
		return 0, false
	}
	return len(b), false
}
