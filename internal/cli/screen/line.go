package screen

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"

	"github.com/wherry-node/wherry/internal/cli/plain"
)

// Style is how a text looks.
type Style uint8

// These are the styles. On a terminal without colours Good, Busy and Warn look like Plain.
const (
	Plain Style = iota
	Faint
	Strong
	Good   // something is as it should be
	Busy   // something is under way
	Warn   // something needs attention soon
	Bad    // something is wrong
	Marked // what the user has chosen
)

// sgr has the parameters of the terminal's sequence for each style (Select Graphic Rendition), with and without colours.
var sgr = [...]struct{ colour, plain string }{
	Plain: {"", ""}, Faint: {"2", ""}, Strong: {"1", "1"}, Good: {"32", ""}, Busy: {"36", ""}, Warn: {"33", ""}, Bad: {"1;31", "1"}, Marked: {"7", "7"},
}

// Span is a text of one style.
type Span struct {
	Text  string
	Style Style
}

// Line is a line of the screen.
type Line []Span

// Of returns a line of one style.
func Of(style Style, text string) Line { return Line{{text, style}} }

// String returns the text of the line.
func (l Line) String() string {
	var b strings.Builder
	for _, s := range l {
		b.WriteString(s.Text)
	}
	return b.String()
}

// Size is the size of a terminal in characters.
type Size struct{ Columns, Rows int }

// Mode is what a terminal can show.
type Mode struct {
	ASCII  bool // only ASCII characters
	Colour bool
}

// longest bounds the characters of one text. A character may have no width, so the width of the screen does not bound them.
const longest = 1024

// Text makes a text safe and readable on the terminal: control characters are escaped, and so is what is not ASCII if the terminal shows only
// ASCII.
func (m Mode) Text(s string) string {
	if n := 4 * longest; len(s) > n {
		s = strings.ToValidUTF8(s[:n], "")
	}
	s = plain.Text(s)
	if r := []rune(s); len(r) > longest {
		s = string(r[:longest])
	}
	if !m.ASCII {
		return s
	}
	return strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf {
			return r
		}
		return '?'
	}, s)
}

// Width returns how many columns a text of Mode.Text needs.
func Width(s string) int {
	n := 0
	for _, r := range s {
		n += columns(r)
	}
	return n
}

// columns returns how many columns a character needs.
func columns(r rune) int {
	if r < utf8.RuneSelf {
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	if kind := width.LookupRune(r).Kind(); kind == width.EastAsianWide || kind == width.EastAsianFullwidth {
		return 2
	}
	return 1
}

// Cut returns a text as Text does, in at most so many columns. It marks a text that it has cut.
func (m Mode) Cut(s string, most int) string {
	s = m.Text(s)
	if Width(s) <= most {
		return s
	}
	mark := "…"
	if m.ASCII {
		mark = "~"
	}
	if most < 1 {
		return ""
	}
	n := 0
	for i, r := range s {
		c := columns(r)
		if n+c > most-1 {
			return s[:i] + mark
		}
		n += c
	}
	return s
}

// Cell returns a text as Cut does, with spaces up to so many columns.
func (m Mode) Cell(s string, size int) string {
	s = m.Cut(s, size)
	return s + strings.Repeat(" ", max(0, size-Width(s)))
}

// Right returns a text as Cut does, with spaces before it up to so many columns.
func (m Mode) Right(s string, size int) string {
	s = m.Cut(s, size)
	return strings.Repeat(" ", max(0, size-Width(s))) + s
}

// Fit returns the line in at most so many columns, with texts as Text returns them.
func (m Mode) Fit(l Line, most int) Line {
	out := make(Line, 0, len(l))
	left := most
	for _, s := range l {
		text := m.Text(s.Text)
		if w := Width(text); w > left {
			if text = m.Cut(text, left); text != "" {
				out = append(out, Span{text, s.Style})
			}
			break
		} else if text != "" {
			out = append(out, Span{text, s.Style})
			left -= w
		}
	}
	return out
}

// Encode returns what makes a terminal of this size show the lines, and nothing else. It needs no clearing before, so that a screen that is drawn
// again does not flicker.
func (m Mode) Encode(lines []Line, size Size) string {
	var b strings.Builder
	b.WriteString("\x1b[H")
	for i, l := range lines[:min(len(lines), max(0, size.Rows))] {
		if i > 0 {
			b.WriteString("\r\n")
		}
		l = m.Fit(l, size.Columns)
		for _, s := range l {
			m.span(&b, s)
		}
		if Width(l.String()) < size.Columns { // in the last column the sequence would erase the last character
			b.WriteString("\x1b[K")
		}
	}
	if len(lines) < size.Rows {
		if len(lines) > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString("\x1b[J")
	}
	return b.String()
}

// span writes a text with its style.
func (m Mode) span(b *strings.Builder, s Span) {
	code := sgr[s.Style].plain
	if m.Colour {
		code = sgr[s.Style].colour
	}
	if code == "" {
		b.WriteString(s.Text)
		return
	}
	b.WriteString("\x1b[" + code + "m" + s.Text + "\x1b[0m")
}

// ModeOf returns the mode of a terminal from the environment: NO_COLOR and the locale. ok is false if the terminal cannot show a whole screen.
func ModeOf(getenv func(string) string) (mode Mode, ok bool) {
	locale := ""
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if locale = getenv(name); locale != "" {
			break
		}
	}
	locale = strings.ReplaceAll(strings.ToLower(locale), "-", "")
	kind := getenv("TERM")
	return Mode{ASCII: !strings.Contains(locale, "utf8"), Colour: getenv("NO_COLOR") == ""}, kind != "" && kind != "dumb"
}
