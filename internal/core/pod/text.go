package pod

import (
	"strings"
	"unicode/utf8"
)

// TextBytes bounds each text that leaves the node: a message of a status or an event, a log line's value, an answer of "wherry explain".
// Texts of containers and runtimes have no bound of their own.
const TextBytes = 4 << 10

// Text returns a text of a container, a probe or a runtime in a form that is safe to show: at most TextBytes of valid UTF-8,
// without control characters except newline and tab, because a terminal obeys control characters. A text that was cut ends in
// "...". The result does not keep a long original in memory.
func Text(s string) string { return TextMax(s, TextBytes) }

// TextMax does the same as Text with another bound, which must be at least 3.
func TextMax(s string, limit int) string {
	const mark = "..."
	text, whole := cut(s, limit)
	if !whole {
		text, _ = cut(s, limit-len(mark))
		text += mark
	}
	return text
}

// Cut does the same as TextMax, but does not add "..." to a text that it cuts.
func Cut(s string, limit int) string {
	text, _ := cut(s, limit)
	return text
}

// cut does the same as Cut, and also reports whether the result contains all of s.
func cut(s string, limit int) (text string, whole bool) {
	if len(s) <= limit && sayable(s) {
		return s, true
	}
	var b strings.Builder
	b.Grow(min(len(s), limit))
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if control(r) {
			r = utf8.RuneError
		}
		if b.Len()+utf8.RuneLen(r) > limit {
			return b.String(), false
		}
		b.WriteRune(r)
		i += n
	}
	return b.String(), true
}

func sayable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, control)
}

// control reports whether a terminal may interpret a character as a command.
func control(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 }

// TextError returns an error that wraps err. Its message is Text of err's message.
func TextError(err error) error {
	if err == nil {
		return nil
	}
	said := err.Error()
	if text := Text(said); text != said {
		return &textError{text, err}
	}
	return err
}

type textError struct {
	text string
	err  error
}

func (e *textError) Error() string { return e.text }
func (e *textError) Unwrap() error { return e.err }
