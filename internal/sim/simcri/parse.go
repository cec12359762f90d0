package simcri

import "strings"

// word is a word of a script. Its variables get their values when its command runs.
type word struct {
	text  string
	parts []part // nil: text has no variables
}

type part struct {
	text     string // a literal text, or the name of a variable
	variable bool
	without  string // replaces a variable that is not set: ${NAME-without}
	orEmpty  bool   // without also replaces an empty value: ${NAME:-without}
}

func (p *part) value(env map[string]string) string {
	if !p.variable {
		return p.text
	}
	value, set := env[p.text]
	if !set || value == "" && p.orEmpty {
		return p.without
	}
	return value
}

// size returns the length of the expanded word in bytes.
func (w word) size(env map[string]string) int {
	n := len(w.text)
	for i := range w.parts {
		n += len(w.parts[i].value(env))
	}
	return n
}

func (w word) expand(env map[string]string) string {
	if w.parts == nil {
		return w.text
	}
	var b strings.Builder
	for i := range w.parts {
		b.WriteString(w.parts[i].value(env))
	}
	return b.String()
}

// datePlaceholder stands for $(date) in output until the output is written.
const datePlaceholder = "\x00date\x00"

// simple is one command of a script and the operator after it.
type simple struct {
	words []word
	to    redirect
	op    string
}

// parser splits a script into commands.
type parser struct {
	out    []simple
	cur    simple
	word   word
	lit    strings.Builder
	inWord bool
	toFile bool // the next word is the file to which standard output goes
	toNone bool // the next word is the file to which standard error goes; nothing is written there
}

func (p *parser) literal() {
	if p.lit.Len() > 0 {
		p.word.parts = append(p.word.parts, part{text: p.lit.String()})
		p.lit.Reset()
	}
}

func (p *parser) endWord() {
	if !p.inWord {
		return
	}
	p.literal()
	if len(p.word.parts) == 0 {
		p.word = word{}
	} else if len(p.word.parts) == 1 && !p.word.parts[0].variable {
		p.word = word{text: p.word.parts[0].text}
	}
	switch {
	case p.toNone:
		p.toNone = false
	case p.toFile:
		p.cur.to.file, p.toFile = p.word.expand(nil), false
	default:
		p.cur.words = append(p.cur.words, p.word)
	}
	p.word, p.inWord = word{}, false
}

func (p *parser) endCommand(op string) {
	p.endWord()
	for len(p.cur.words) > 0 && strings.Contains(" do then else { ( ", " "+p.cur.words[0].text+" ") {
		p.cur.words = p.cur.words[1:] // the remaining words are a command of their own
	}
	p.cur.op = op
	p.toFile, p.toNone = false, false
	p.out = append(p.out, p.cur)
	p.cur = simple{}
}

// parse splits a script into commands.
func parse(text string) []simple {
	var p parser
	for i := 0; i < len(text); {
		i += p.next(text[i:])
	}
	p.endCommand(";")
	return p.out
}

// next parses the first token of text and returns its length.
func (p *parser) next(text string) int {
	switch c := text[0]; {
	case c == '\'':
		p.inWord = true
		quoted, _, _ := strings.Cut(text[1:], "'")
		p.lit.WriteString(quoted)
		return min(len(quoted)+2, len(text))
	case c == '"':
		return p.quoted(text)
	case c == '\\' && len(text) > 1:
		p.inWord = true
		if text[1] != '\n' {
			p.lit.WriteByte(text[1])
		}
		return 2
	case c == '$':
		p.inWord = true
		return p.variable(text)
	case strings.HasPrefix(text, "&&"), strings.HasPrefix(text, "||"):
		p.endCommand(text[:2])
		return 2
	case strings.HasPrefix(text, "1>&2"), strings.HasPrefix(text, "2>&1"):
		p.endWord()
		p.cur.to.stderr = p.cur.to.stderr || c == '1'
		return 4
	case strings.HasPrefix(text, ">&2"):
		p.endWord()
		p.cur.to.stderr = true
		return 3
	case !p.inWord && strings.HasPrefix(text, "2>"):
		p.toNone = true
		if strings.HasPrefix(text, "2>>") {
			return 3
		}
		return 2
	case c == '>':
		p.endWord()
		p.toFile = true
		if strings.HasPrefix(text, ">>") {
			return 2
		}
	case c == ';' || c == '\n' || c == '&' || c == '|':
		p.endCommand(";")
	case c == ' ' || c == '\t':
		p.endWord()
	case c == '#' && !p.inWord:
		comment, _, _ := strings.Cut(text, "\n")
		return len(comment)
	default:
		p.lit.WriteByte(c)
		p.inWord = true
	}
	return 1
}

// quoted parses a word in double quotes.
func (p *parser) quoted(text string) int {
	p.inWord = true
	i := 1
	for i < len(text) && text[i] != '"' {
		switch {
		case text[i] == '$':
			i += p.variable(text[i:])
			continue
		case text[i] == '\\' && i+1 < len(text) && strings.IndexByte(`"\$`, text[i+1]) >= 0:
			i++
		}
		p.lit.WriteByte(text[i])
		i++
	}
	return min(i+1, len(text))
}

// variable parses $NAME, ${NAME} or $(COMMAND). Only the command date has a value.
func (p *parser) variable(text string) int {
	for open, end := range map[string]string{"${": "}", "$(": ")"} {
		if !strings.HasPrefix(text, open) {
			continue
		}
		inner, _, found := strings.Cut(text[2:], end)
		if !found {
			break
		}
		n := len(inner) + 3
		switch {
		case open == "${":
			p.literal()
			name, without, given := strings.Cut(inner, "-")
			if !given {
				name = inner
			}
			v := part{text: strings.TrimSuffix(name, ":"), variable: true, without: without, orEmpty: strings.HasSuffix(name, ":")}
			p.word.parts = append(p.word.parts, v)
		case strings.HasPrefix(inner, "("): // an arithmetic expression ends with two parentheses
			if strings.HasPrefix(text[n:], ")") {
				n++
			}
		case strings.HasPrefix(inner, "date"):
			p.lit.WriteString(datePlaceholder)
		case strings.HasPrefix(inner, "hostname"):
			p.literal()
			p.word.parts = append(p.word.parts, part{text: "HOSTNAME", variable: true})
		}
		return n
	}
	n := 1
	for n < len(text) && (text[n] == '_' || text[n] >= '0' && text[n] <= '9' || text[n]|0x20 >= 'a' && text[n]|0x20 <= 'z') {
		n++
	}
	if n == 1 {
		p.lit.WriteByte('$')
		return 1
	}
	p.literal()
	p.word.parts = append(p.word.parts, part{text: text[1:n], variable: true})
	return n
}
