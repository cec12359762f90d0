package yamldoc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// parserTexts says in plain words what the parser of YAML says in its own, for the faults that people make most.
var parserTexts = []struct{ parser, plain string }{
	{"mapping values are not allowed in this context", "a colon is where none may be: put the text in quotes, or indent the field like its neighbours"},
	{"did not find expected key", "a field is not indented like its neighbours, or a quote or bracket before it is not closed"},
	{"did not find expected '-' indicator", "an entry of a list is not indented like the others, or has no dash"},
	{"did not find expected ',' or '}'", "a { is not closed, or a comma is missing"},
	{"did not find expected ',' or ']'", "a [ is not closed, or a comma is missing"},
	{"did not find expected node content", "a value is missing, or a bracket is where none may be"},
	{"could not find expected ':'", "a field has no colon, or a quote before it is not closed"},
	{"found unexpected end of stream", "a quote or bracket is not closed"},
	{"found character that cannot start any token", "a value begins with a tab, a % or another character that needs quotes: indent with spaces"},
	{"found a tab character that violates indentation", "a tab is where only spaces may be"},
	{"found a tab character where an indentation space is expected", "a tab is where only spaces may be"},
	{"block sequence entries are not allowed in this context", "an entry of a list is where none may be: begin it in a line of its own"},
	{"found unknown escape character", "a backslash in double quotes is followed by a character that means nothing: use single quotes"},
	{"control characters are not allowed", "a control character is in the text, for example a zero byte"},
}

// plain returns the text of a fault in plain words, or as the parser has said it.
func plain(text string) string {
	for _, t := range parserTexts {
		if strings.HasSuffix(text, t.parser) {
			return t.plain
		}
	}
	return text
}

// JSONText says in plain words why a value in JSON could not be decoded. It names neither types of Go nor the program's own names.
func JSONText(err error) string {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &syntax) && strings.HasPrefix(syntax.Error(), "unexpected end"):
		return "the text ends in the middle of a value"
	case errors.Is(err, io.EOF):
		return "there is no text"
	case syntax != nil:
		return fmt.Sprintf("it is not JSON from byte %d on", syntax.Offset)
	case errors.As(err, &kind) && kind.Field != "":
		return fmt.Sprintf("the field %s does not take this %s", kind.Field, kind.Value)
	case kind != nil:
		return fmt.Sprintf("it must not be a value like this: %s", kind.Value)
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}
