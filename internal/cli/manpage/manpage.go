package manpage

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Page is one manual page of section 1.
type Page struct {
	Name string // the name of the file: wherry-run.1
	Text string // in the macro language of man
}

// Config configures Of.
type Config struct {
	// Source is the name and version of the program, for the footer of each page.
	Source string
	// Flags returns the flags of a command that parses its arguments without cobra. If Flags is nil or returns nil, the page
	// describes the flags that the command declares.
	Flags func(*cobra.Command) *pflag.FlagSet
}

// Of returns the pages of root and of all commands below it, in their order. Hidden commands have no page.
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

// seen reports whether a command gets a page. The help command gets none, because it would add nothing.
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

// verbatim keeps the lines of a text unchanged, because they contain columns and examples.
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

// related writes the section SEE ALSO, which names the parent command and the subcommands.
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

// line formats one line of text. A line that begins with a dot or a quote would be a macro.
func line(s string) string {
	s = escape(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s + "\n"
}

// escape protects backslashes and hyphens. An unescaped hyphen may be displayed as another character, which breaks copying into
// a shell.
func escape(s string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, `"`, `\(dq`).Replace(s)
}
