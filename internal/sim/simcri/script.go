package simcri

import (
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// program is the precomputed effect of a command: output at certain times, and an exit.
type program struct {
	steps       []step
	took        time.Duration
	code        int32
	message     string // the content of the termination message file
	forever     bool
	ignoresStop bool // SIGTERM has no effect on the first process of a container unless the process handles it
	readsStdin  bool // the command was cat without a file, so it reads standard input
	unknown     bool // it ran a command that the simple shell does not have
	// A loop repeats the steps from loopFrom on, once per period.
	loopFrom int
	period   time.Duration
}

// step is a piece of output, written at a certain time after the start of the program.
type step struct {
	at     time.Duration
	out    []byte
	stderr bool
}

// cursor is a place in the output of a program: a step, and how many times the loop has run before.
type cursor struct{ step, laps int }

// due returns when the program writes the step at c, after its start; false: it writes nothing more.
func (p *program) due(c cursor) (time.Duration, bool) {
	if c.step >= len(p.steps) {
		return 0, false
	}
	return p.steps[c.step].at + time.Duration(c.laps)*p.period, true
}

// following returns the place after c.
func (p *program) following(c cursor) cursor {
	if c.step++; c.step == len(p.steps) && p.period > 0 && p.loopFrom < c.step {
		c = cursor{p.loopFrom, c.laps + 1}
	}
	return c
}

// after returns the place of the first step that is due later than since after the start.
func (p *program) after(since time.Duration) (c cursor) {
	if p.period > 0 && p.loopFrom < len(p.steps) {
		if laps := (since - p.steps[len(p.steps)-1].at) / p.period; laps > 0 { // whole rounds that are over
			c = cursor{p.loopFrom, int(laps)}
		}
	}
	for at, more := p.due(c); more && at <= since; at, more = p.due(c) {
		c = p.following(c)
	}
	return c
}

// compileMain computes the program of a container. It returns nil for a server, which runs until it is stopped.
func compileMain(cfg *runtimeapi.ContainerConfig, hostname string) *program {
	cmd := append(append([]string(nil), cfg.Command...), cfg.Args...)
	if len(cmd) == 0 {
		return nil
	}
	s := shell{env: environment(hostname, cfg.Envs), messagePath: cfg.Annotations["io.kubernetes.container.terminationMessagePath"], main: true}
	s.run(cmd)
	if s.p.readsStdin && cfg.Stdin {
		s.p.forever = true
	}
	if s.p.forever && !s.p.ignoresStop && len(s.p.steps) == 0 {
		return nil
	}
	return &s.p
}

// environment returns the variables of a process.
func environment(hostname string, own []*runtimeapi.KeyValue) map[string]string {
	env := map[string]string{"HOSTNAME": hostname, "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	for _, kv := range own {
		env[kv.Key] = string(kv.Value)
	}
	return env
}

// compileExec computes the program of a command in a container that has these files.
func compileExec(cmd []string, env map[string]string, f *files) *program {
	s := shell{env: env, files: f}
	s.run(cmd)
	return &s.p
}

// shell interprets a simple language: commands joined by ; && || and newlines, quotes, $NAME, output to /dev/termination-log or
// to standard error, and for loops over words. Other loops run for ever. A pipe and & count as a semicolon. The conditions and all
// branches of an if run, and test always succeeds. cat and ls know the files that were copied into the container. An unknown command succeeds at
// once in an exec, and is a server in a container.
type shell struct {
	p           program
	env         map[string]string
	files       *files
	messagePath string
	main        bool
	status      int32
	ran         int  // number of executed commands and loop iterations, see tick
	text        int  // bytes of all expanded words
	traps       bool // a trap handles SIGTERM
	done        bool
}

// run runs the first process.
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
	if !s.tick() {
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
		s.traps, s.p.ignoresStop = true, false
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
		for _, name := range args {
			if content, ok := s.files.read(name); ok {
				s.write(string(content), to)
			}
		}
	case "ls":
		s.ls(args, to)
	case "env", "printenv":
		for _, k := range slices.Sorted(maps.Keys(s.env)) {
			s.write(k+"="+s.env[k]+"\n", to)
		}
	case "hostname":
		s.write(s.env["HOSTNAME"]+"\n", to)
	case "date":
		s.write(datePlaceholder+"\n", to)
	case "break", "continue", "kill":
	case "tail", "wait", "yes", "top", "pause":
		s.forever(s.main && name != "pause" && name != "top") // in a container, pause and top end on SIGTERM; the others do not handle SIGTERM
	default:
		s.p.unknown = true
		if s.main {
			s.forever(false) // counts as a server, which handles SIGTERM
		}
	}
}

// maxSleep is the longest sleep, which a simulation does not reach. maxCommands bounds the commands and the rounds of loops of a
// script, and maxText the bytes of all its words with their variables replaced. A script that exceeds a bound runs for ever.
const (
	maxSleep    = 3 * 365 * 24 * time.Hour
	maxCommands = 20_000
	maxText     = 4 << 20
)

// tick counts a command or a round of a loop. It reports whether the script goes on.
func (s *shell) tick() bool {
	if s.ran++; s.ran > maxCommands {
		s.forever(s.main)
	}
	return !s.done
}

func (s *shell) forever(ignoresStop bool) {
	s.p.forever, s.done = true, true
	s.p.ignoresStop = !s.traps && (s.p.ignoresStop || ignoresStop)
}

// sleep waits for the sum of its arguments. If it is the first process, it does not handle signals.
func (s *shell) sleep(args []string) {
	s.p.ignoresStop = s.main && !s.traps
	units := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}
	for _, a := range args {
		if a == "infinity" || a == "inf" {
			s.forever(s.main)
			return
		}
		unit := time.Second
		if a == "" {
			s.write("sleep: invalid time interval ''\n", redirect{stderr: true})
			s.status = 1
			return
		}
		if u, ok := units[a[len(a)-1]]; ok {
			unit, a = u, a[:len(a)-1]
		}
		n, err := strconv.ParseFloat(a, 64)
		if err == nil && n*float64(unit) > float64(maxSleep) {
			s.forever(s.main)
			return
		}
		if err != nil || n < 0 || math.IsNaN(n) {
			s.write("sleep: invalid time interval '"+a+"'\n", redirect{stderr: true})
			s.status = 1
			return
		}
		if s.p.took += time.Duration(n * float64(unit)); s.p.took > maxSleep {
			s.forever(s.main)
			return
		}
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

// ls lists the files that were copied into the container.
func (s *shell) ls(args []string, to redirect) {
	dirs := slices.DeleteFunc(slices.Clone(args), func(a string) bool { return strings.HasPrefix(a, "-") })
	if len(dirs) == 0 {
		dirs = []string{"/"}
	}
	for _, d := range dirs {
		for _, name := range s.files.list(d) {
			s.write(name+"\n", to)
		}
	}
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

// shell runs a script given with -c. A shell that reads its script from a file, or has none, counts as an unknown command.
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

// script runs the commands of a script one after another.
func (s *shell) script(text string) { s.list(parse(text)) }

func (s *shell) list(commands []simple) {
	op := ";"
	for i := 0; i < len(commands) && s.tick(); i++ {
		c := commands[i]
		words := s.expandAll(c.words)
		if (op == ";" || (op == "&&") == (s.status == 0)) && len(words) > 0 {
			switch words[0] {
			case "while", "until", "for":
				end := closing(commands, i)
				s.loop(words, commands[i+1:end])
				i = min(end, len(commands)-1)
				c = commands[i]
			case "if", "elif", "fi", "done", "}", ")":
				s.command(words[1:], c.to)
			default:
				if name, value, ok := strings.Cut(words[0], "="); ok && len(words) == 1 {
					s.env[name] = value
					break
				}
				s.command(words, c.to)
			}
		}
		op = c.op
	}
}

// closing returns the index of the command "done" that ends the loop at index i.
func closing(commands []simple, i int) int {
	depth := 0
	for ; i < len(commands); i++ {
		if len(commands[i].words) == 0 {
			continue
		}
		switch commands[i].words[0].text {
		case "while", "until", "for":
			depth++
		case "done":
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return i
}

// loop runs a for loop once per word, and any other loop for ever.
func (s *shell) loop(head []string, body []simple) {
	if head[0] == "for" && len(head) > 2 && head[2] == "in" {
		for _, v := range head[3:] {
			if !s.tick() {
				return
			}
			s.env[head[1]] = v
			s.list(body)
		}
		return
	}
	from, began := len(s.p.steps), s.p.took
	s.list(body)
	if s.done {
		return
	}
	s.p.loopFrom, s.p.period = from, s.p.took-began
	if s.p.period < 100*time.Millisecond {
		s.p.period = time.Second // a loop without a sleep runs once per second
	}
	s.forever(s.main)
}

// expandAll replaces the variables in the words of a command.
func (s *shell) expandAll(words []word) []string {
	var out []string
	for _, w := range words {
		if s.text += w.size(s.env); s.text > maxText {
			s.forever(s.main)
			return nil
		}
		out = append(out, w.expand(s.env))
	}
	return out
}
