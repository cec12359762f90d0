package config

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

// An error about a file quotes the file, so its text may be long and have multi-byte characters. tell cuts it at the end of a
// character.
func TestTheErrorOfAFileIsCutBetweenCharacters(t *testing.T) {
	t.Parallel()
	for lead := range 4 {
		var got string
		s := watching{Watch: &Watch{Wrong: func(err error) { got = err.Error() }}}
		s.tell(Config{}, nil, errors.New(strings.Repeat("a", lead)+strings.Repeat("€", maxWrong)+"\x1b[2J"))
		if !utf8.ValidString(got) || len(got) > maxWrong || !strings.HasSuffix(got, "€...") {
			t.Errorf("%d bytes that end in %q", len(got), got[len(got)-8:])
		}
	}
}
