package simcri

import (
	"path"
	"strconv"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// program is what a command does, worked out beforehand: output at certain times, and an end.
type program struct {
	steps       []step
	took        time.Duration
	code        int32
	message     string // what it wrote to the termination message file
	forever     bool
	ignoresStop bool // "SIGTERM has no effect on the first process of a container unless it handles it"
	readsStdin  bool // cat without a file
	unknown     bool // it ran a command that the tiny shell does not know
}

// step is output at a time after the start.
type step struct {
	at     time.Duration
	out    []byte
	stderr bool
}

// compileMain works out what a container does. nil is a server.
func compileMain(cfg *runtimeapi.ContainerConfig) *program {
	cmd := append(append([]string(nil), cfg.Command...), cfg.Args...)
	if len(cmd) == 0 {
		return nil
	}
	env := map[string]string{}
	for _, kv := range cfg.Envs {
		env[kv.Key] = string(kv.Value)
	}
	s := shell{env: env, messagePath: cfg.Annotations["io.kubernetes.container.terminationMessagePath"], main: true}
	s.run(cmd)
	if s.p.readsStdin {
		s.p.forever = true
	}
	if s.p.forever && !s.p.ignoresStop && len(s.p.steps) == 0 {
		return nil
	}
	return &s.p
}

// compileExec works out what a command run in a container does.
func compileExec(cmd []string, env map[string]string) *program {
	s := shell{env: env}
	s.run(cmd)
	return &s.p
}

// shell runs a tiny language: commands in a row with ; && || and newlines, quotes, $NAME, output to
// /dev/termination-log or to standard error. Loops run for ever; what it does not know succeeds at once in an
// exec, and is a server in a container.
type shell struct {
	p           program
	env         map[string]string
	messagePath string
	main        bool
	status      int32
	done        bool
}

// run is the first process.
func (s *shell) run(cmd []string) {
	s.command(cmd, redirect{})
	if s.p.forever {
		return
	}
	s.p.code = s.status
}

type redirect struct {
	stderr bool
	file   string
}

func (s *shell) command(words []string, to redirect) {
	if len(words) == 0 || s.done {
		return
	}
	args := words[1:]
	s.status = 0
	switch name := path.Base(words[0]); name {
	case "sh", "bash", "ash", "dash":
		s.shell(args)
	case "exec", "nohup", "command":
		s.command(args, to)
	case "sleep":
		s.sleep(args)
	case "true", ":", "set", "test", "[", "cd", "mkdir", "touch", "chmod", "rm", "sync", "export":
	case "trap":
		s.p.ignoresStop = false
	case "false":
		s.status = 1
	case "exit":
		if len(args) > 0 {
			n, err := strconv.ParseUint(args[0], 10, 32)
			if err != nil {
				n = 2
			}
			s.status = int32(n & 0xff) //nolint:gosec // eight bits
		}
		s.done = true
	case "echo":
		s.echo(args, to)
	case "printf":
		if len(args) > 0 {
			s.write(unescape(args[0]), to)
		}
	case "cat":
		if len(args) == 0 || args[0] == "-" {
			s.p.readsStdin = true
		}
	case "env", "printenv":
		for k, v := range s.env {
			s.write(k+"="+v+"\n", to)
		}
	case "hostname":
		s.write(s.env["HOSTNAME"]+"\n", to)
	case "tail", "wait", "yes", "top", "pause":
		s.forever(s.main && name != "pause")
	default:
		s.p.unknown = true
		if s.main {
			s.forever(false) // a server, which handles signals
		}
	}
}

func (s *shell) forever(ignoresStop bool) {
	s.p.forever, s.done = true, true
	s.p.ignoresStop = s.p.ignoresStop || ignoresStop
}

// sleep waits for the sum of its arguments. A first process that sleeps does not handle signals.
func (s *shell) sleep(args []string) {
	s.p.ignoresStop = s.main
	units := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}
	for _, a := range args {
		if a == "infinity" || a == "inf" {
			s.forever(s.main)
			return
		}
		unit := time.Second
		if u, ok := units[a[max(len(a)-1, 0)]]; ok {
			unit, a = u, a[:len(a)-1]
		}
		n, err := strconv.ParseFloat(a, 64)
		if err != nil || n < 0 || n > 1e7 {
			s.write("sleep: invalid time interval '"+a+"'\n", redirect{stderr: true})
			s.status = 1
			return
		}
		s.p.took += time.Duration(n * float64(unit))
	}
}

func (s *shell) echo(args []string, to redirect) {
	end, escapes := "\n", false
	for len(args) > 0 && (args[0] == "-n" || args[0] == "-e" || args[0] == "-ne") {
		if strings.Contains(args[0], "n") {
			end = ""
		}
		escapes = escapes || strings.Contains(args[0], "e")
		args = args[1:]
	}
	text := strings.Join(args, " ")
	if escapes {
		text = unescape(text)
	}
	s.write(text+end, to)
}

func (s *shell) write(text string, to redirect) {
	switch {
	case to.file != "" && (to.file == s.messagePath || to.file == "/dev/termination-log"):
		s.p.message += text
	case to.file != "" && to.file != "/dev/stdout" && to.file != "/dev/stderr":
	default:
		s.p.steps = append(s.p.steps, step{s.p.took, []byte(text), to.stderr || to.file == "/dev/stderr"})
	}
}

func unescape(s string) string {
	return strings.NewReplacer(`\n`, "\n", `\t`, "\t", `\\`, `\`).Replace(s)
}

// shell runs a script given with -c. A script of a file, or none at all, is not known.
func (s *shell) shell(args []string) {
	for i, a := range args {
		if strings.HasPrefix(a, "-") && strings.HasSuffix(a, "c") && i+1 < len(args) {
			s.script(args[i+1])
			return
		}
	}
	s.p.unknown = true
	if s.main {
		s.forever(true)
	}
}

// script runs commands in a row.
func (s *shell) script(text string) {
	op := ";"
	for _, c := range parse(text, s.env) {
		run := op == ";" || (op == "&&") == (s.status == 0)
		if run && len(c.words) > 0 {
			switch c.words[0] {
			case "while", "until", "for":
				s.forever(true)
			case "do", "done", "if", "then", "else", "elif", "fi", "{", "}", "(", ")":
				s.command(c.words[1:], c.to)
			default:
				if name, value, ok := strings.Cut(c.words[0], "="); ok && len(c.words) == 1 {
					s.env[name] = value
					break
				}
				s.command(c.words, c.to)
			}
		}
		if s.done {
			return
		}
		op = c.op
	}
}

// simple is one command of a script and the operator after it.
type simple struct {
	words []string
	to    redirect
	op    string
}

// parse splits a script into commands.
func parse(text string, env map[string]string) []simple {
	var out []simple
	var cur simple
	var word strings.Builder
	inWord, toFile := false, false
	flush := func() {
		if !inWord {
			return
		}
		switch w := word.String(); {
		case toFile:
			cur.to.file, toFile = w, false
		default:
			cur.words = append(cur.words, w)
		}
		word.Reset()
		inWord = false
	}
	end := func(op string) {
		flush()
		cur.op = op
		out = append(out, cur)
		cur = simple{}
	}
	for i := 0; i < len(text); i++ {
		rest := text[i:]
		switch c := text[i]; {
		case c == '\'' || c == '"':
			inWord = true
			for i++; i < len(text) && text[i] != c; i++ {
				if c == '"' && text[i] == '$' {
					i += expand(text[i:], env, &word) - 1
					continue
				}
				if c == '"' && text[i] == '\\' && i+1 < len(text) && strings.IndexByte(`"\$`, text[i+1]) >= 0 {
					i++
				}
				word.WriteByte(text[i])
			}
		case c == '\\' && i+1 < len(text):
			i++
			word.WriteByte(text[i])
			inWord = true
		case c == '$':
			inWord = true
			i += expand(rest, env, &word) - 1
		case strings.HasPrefix(rest, "&&"), strings.HasPrefix(rest, "||"):
			end(rest[:2])
			i++
		case strings.HasPrefix(rest, "1>&2"), strings.HasPrefix(rest, "2>&1"):
			flush()
			cur.to.stderr = c == '1'
			i += 3
		case strings.HasPrefix(rest, ">&2"):
			flush()
			cur.to.stderr = true
			i += 2
		case c == '>':
			flush()
			toFile = true
			if strings.HasPrefix(rest, ">>") {
				i++
			}
		case c == ';' || c == '\n' || c == '&' || c == '|':
			end(";")
		case c == ' ' || c == '\t':
			flush()
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	end(";")
	return out
}

// expand writes the value of the variable at the beginning of text and returns how long its name is.
func expand(text string, env map[string]string, to *strings.Builder) int {
	if strings.HasPrefix(text, "${") {
		if end := strings.IndexByte(text, '}'); end > 0 {
			to.WriteString(env[text[2:end]])
			return end + 1
		}
	}
	n := 1
	for n < len(text) && (text[n] == '_' || text[n] >= '0' && text[n] <= '9' || text[n]|0x20 >= 'a' && text[n]|0x20 <= 'z') {
		n++
	}
	if n == 1 {
		to.WriteByte('$')
		return 1
	}
	to.WriteString(env[text[1:n]])
	return n
}
