package screen

import "strings"

// Key is a key that the user has pressed.
type Key string

// These are the keys with a name. Another key is its character.
const (
	KeyUp       Key = "up"
	KeyDown     Key = "down"
	KeyLeft     Key = "left"
	KeyRight    Key = "right"
	KeyPageUp   Key = "page up"
	KeyPageDown Key = "page down"
	KeyHome     Key = "home"
	KeyEnd      Key = "end"
	KeyTab      Key = "tab"
	KeyBackTab  Key = "back tab"
	// KeyInterrupt is Ctrl-C, KeySuspend Ctrl-Z, and KeyRedraw Ctrl-L.
	KeyInterrupt Key = "interrupt"
	KeySuspend   Key = "suspend"
	KeyRedraw    Key = "redraw"
)

// sequences has what a terminal sends for keys that have no character of their own.
var sequences = map[string]Key{
	"\x1b[A": KeyUp, "\x1b[B": KeyDown, "\x1b[C": KeyRight, "\x1b[D": KeyLeft, "\x1bOA": KeyUp, "\x1bOB": KeyDown, "\x1bOC": KeyRight, "\x1bOD": KeyLeft,
	"\x1b[5~": KeyPageUp, "\x1b[6~": KeyPageDown, "\x1b[H": KeyHome, "\x1b[F": KeyEnd, "\x1b[1~": KeyHome, "\x1b[4~": KeyEnd, "\x1bOH": KeyHome, "\x1bOF": KeyEnd,
	"\x1b[Z": KeyBackTab, "\t": KeyTab, "\x03": KeyInterrupt, "\x1a": KeySuspend, "\x0c": KeyRedraw,
}

// longestSequence bounds a sequence of a key. A longer one is not a key.
const longestSequence = 16

// decode returns the keys that begin in, and what may be the beginning of another key. Sequences that it does not know are left out.
func decode(in string) (keys []Key, rest string) {
	for in != "" {
		n, whole := length(in)
		if !whole {
			return keys, in
		}
		one := in[:n]
		in = in[n:]
		if key, ok := sequences[one]; ok {
			keys = append(keys, key)
		} else if n == 1 && one[0] > ' '-1 && one[0] < 0x7f {
			keys = append(keys, Key(one))
		}
	}
	return keys, ""
}

// length returns how many bytes the first key of in has. whole is false if more bytes may belong to it.
func length(in string) (n int, whole bool) {
	if in[0] != 0x1b {
		return 1, true
	}
	if len(in) == 1 {
		return 1, false
	}
	switch in[1] {
	case 'O':
		return min(3, len(in)), len(in) >= 3
	case '[': // parameters, and then a character from @ to ~; a control character is a key of its own
		end := strings.IndexFunc(in[2:], func(r rune) bool { return r >= '@' && r <= '~' || r < ' ' })
		switch {
		case end >= 0 && end < longestSequence && in[end+2] < ' ':
			return end + 2, true
		case end >= 0 && end < longestSequence:
			return end + 3, true
		case len(in) > longestSequence:
			return 2, true
		}
		return len(in), false
	}
	return 1, true
}
