package manpage

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Page is one manual page of section 1.
type Page struct {
	Name string // of the file: wherry-run.1
	Text string // for man, in the language of its macros
}

// Config says what Of needs beside the commands.
type Config struct {
	// Source is the name and version of the program, for the foot of each page.
	Source string
	// Flags are those of a command that parses its own; nil, or a nil answer: it has those that it declares.
	Flags func(*cobra.Command) *pflag.FlagSet
}

// Of returns the pages of root and of all commands below it, in their order. Hidden commands have none.
func Of(root *cobra.Command, cfg Config) []Page {
	var out []Page
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		out = append(out, Page{Name: file(c), Text: page(c, cfg)})
		for _, sub := range c.Commands() {
			if seen(sub) {
				walk(sub)
			}
		}
	}
	walk(root)
	return out
}

// seen reports whether people see a command. The help command says nothing that the pages do not.
func seen(c *cobra.Command) bool { return !c.Hidden && c.Name() != "help" }

func file(c *cobra.Command) string { return title(c) + ".1" }

func title(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

func page(c *cobra.Command, cfg Config) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH \"%s\" \"1\" \"\" \"%s\" \"\"\n", escape(strings.ToUpper(title(c))), escape(cfg.Source))
	section(&b, "NAME")
	fmt.Fprintf(&b, "%s \\- %s\n", escape(title(c)), escape(c.Short))
	section(&b, "SYNOPSIS")
	fmt.Fprintf(&b, ".B %s\n", escape(c.UseLine()))
	section(&b, "DESCRIPTION")
	about := c.Long
	if about == "" {
		about = c.Short + "."
	}
	verbatim(&b, about)
	if len(c.Aliases) > 0 {
		section(&b, "OTHER NAMES")
		b.WriteString(line(strings.Join(c.Aliases, ", ")))
	}
	c.InitDefaultHelpFlag()
	flags := c.Flags()
	if cfg.Flags != nil {
		if own := cfg.Flags(c); own != nil {
			flags = own
		}
	}
	options(&b, flags)
	if c.Example != "" {
		section(&b, "EXAMPLES")
		verbatim(&b, c.Example)
	}
	related(&b, c)
	return b.String()
}

func section(b *strings.Builder, name string) { fmt.Fprintf(b, ".SH %s\n", name) }

// verbatim keeps the lines of a text as they are: they have columns and examples in them.
func verbatim(b *strings.Builder, text string) {
	b.WriteString(".nf\n")
	for l := range strings.Lines(text) {
		b.WriteString(line(strings.TrimRight(l, "\n")))
	}
	b.WriteString(".fi\n")
}

func options(b *strings.Builder, flags *pflag.FlagSet) {
	section(b, "OPTIONS")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		names := "--" + f.Name
		if f.Shorthand != "" {
			names = "-" + f.Shorthand + ", " + names
		}
		value, usage := pflag.UnquoteUsage(f)
		if value != "" {
			names += " " + value
		}
		if d := f.DefValue; d != "" && d != "[]" && d != "false" && d != "0" && d != "0s" {
			usage += " (default " + d + ")"
		}
		fmt.Fprintf(b, ".TP\n.B %s\n%s", escape(names), line(usage))
	})
}

// related names the command above and those below.
func related(b *strings.Builder, c *cobra.Command) {
	var names []string
	if c.HasParent() {
		names = append(names, title(c.Parent()))
	}
	for _, sub := range c.Commands() {
		if seen(sub) {
			names = append(names, title(sub))
		}
	}
	if len(names) == 0 {
		return
	}
	section(b, "SEE ALSO")
	for i, name := range names {
		end := ","
		if i == len(names)-1 {
			end = ""
		}
		fmt.Fprintf(b, ".BR %s (1)%s\n", escape(name), end)
	}
}

// line is one line of text. One that begins with a dot or a quote would be a macro.
func line(s string) string {
	s = escape(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s + "\n"
}

// escape keeps backslashes and hyphens as they are: a bare hyphen may be shown as another sign, which nobody can copy into a shell.
func escape(s string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, `"`, `\(dq`).Replace(s)
}
