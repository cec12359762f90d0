package manpage

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func TestPages(t *testing.T) {
	t.Parallel()
	root := &cobra.Command{Use: "prog", Short: "Do things"}
	root.CompletionOptions.DisableDefaultCmd = true
	sub := &cobra.Command{
		Use: "go-on FILE", Short: "Go on", Long: "Go on.\n.hidden files \"too\" C:\\dir", Example: "  prog go-on -f x", Aliases: []string{"continue"},
		Run: func(*cobra.Command, []string) {},
	}
	sub.Flags().StringP("file", "f", "-", "a `NAME`")
	sub.Flags().Bool("secret", false, "")
	if err := sub.Flags().MarkHidden("secret"); err != nil {
		t.Fatal(err)
	}
	own := &cobra.Command{Use: "own", Short: "Parse flags alone", DisableFlagParsing: true, Run: func(*cobra.Command, []string) {}}
	root.AddCommand(sub, own, &cobra.Command{Use: "old", Hidden: true, Run: func(*cobra.Command, []string) {}})
	pages := Of(root, Config{Source: "prog 1.0", Flags: func(c *cobra.Command) *pflag.FlagSet {
		if c.Name() != "own" {
			return nil
		}
		fs := pflag.NewFlagSet("own", pflag.ContinueOnError)
		fs.Int("depth", 3, "how deep")
		return fs
	}})
	var names []string
	for _, p := range pages {
		names = append(names, p.Name)
	}
	if diff := cmp.Diff([]string{"prog.1", "prog-go-on.1", "prog-own.1"}, names); diff != "" {
		t.Fatalf("pages (-want +got):\n%s", diff)
	}
	want := `.TH "PROG\-GO\-ON" "1" "" "prog 1.0" ""
.SH NAME
prog\-go\-on \- Go on
.SH SYNOPSIS
.B prog go\-on FILE [flags]
.SH DESCRIPTION
.nf
Go on.
\&.hidden files \(dqtoo\(dq C:\edir
.fi
.SH OTHER NAMES
continue
.SH OPTIONS
.TP
.B \-f, \-\-file NAME
a NAME (default \-)
.TP
.B \-h, \-\-help
help for go\-on
.SH EXAMPLES
.nf
  prog go\-on \-f x
.fi
.SH SEE ALSO
.BR prog (1)
`
	if diff := cmp.Diff(want, pages[1].Text); diff != "" {
		t.Errorf("a page (-want +got):\n%s", diff)
	}
	wantOwn := `.SH OPTIONS
.TP
.B \-\-depth int
how deep (default 3)
`
	if got := pages[2].Text; !strings.Contains(got, wantOwn) {
		t.Errorf("flags that a command parses alone are missing:\n%s", got)
	}
	if got := pages[0].Text; !strings.Contains(got, ".BR prog\\-go\\-on (1),\n.BR prog\\-own (1)\n") {
		t.Errorf("the commands below are missing:\n%s", got)
	}
}
