package podctl

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/wherry-node/wherry/internal/cli/launch"
	"github.com/wherry-node/wherry/internal/cli/plain"
	"github.com/wherry-node/wherry/internal/edge/recorder"
)

// usualRoots returns the root directories in which the command of the user with this ID looks for recorded turns if none is named: that of
// wherry run, and for root also that of an agent that runs as a service, which other users may not read.
func usualRoots(user int) []string {
	if user == 0 {
		return []string{"/var/lib/kubelet", launch.OwnRoot(user)}
	}
	return []string{launch.OwnRoot(user)}
}

// recordedTurn describes a recorded turn (a decision about a pod with its input) in the output of `wherry explain`. Scripts read its JSON
// form, which is stable: fields are added, never renamed.
type recordedTurn struct {
	At        time.Time `json:"at"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name,omitempty"`
	UID       string    `json:"uid,omitempty"`
	Wrong     string    `json:"wrong,omitempty"`
	Decided   string    `json:"decided,omitempty"` // the last line of the plan
	File      string    `json:"file"`
	Error     string    `json:"error,omitempty"` // why the file cannot be read
}

// recorded prints the turns (decisions with their input) that an agent recorded of a pod, or of all pods (of the namespace, if the user names
// one) if pod is "". It reads the disk and needs no agent.
func (r *Explain) recorded(s Streams, pod string) error {
	namespace, name := r.Namespace, pod
	if ns, n, ok := strings.Cut(pod, "/"); ok {
		namespace, name = ns, n
	}
	if namespace == "" && pod != "" {
		namespace = "default"
	}
	roots := usualRoots(os.Geteuid())
	if r.Root != "" {
		roots = []string{r.Root}
	}
	list := []recordedTurn{}
	for _, root := range roots {
		found, err := recorder.Read(root, namespace, name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, f := range found {
			list = append(list, recordedOf(&f))
		}
	}
	if r.Format != "" {
		return printObject(s.Out, list, r.Format)
	}
	if len(list) == 0 {
		of := "any pod"
		switch {
		case pod != "":
			of = "pod " + namespace + "/" + name
		case namespace != "":
			of = "any pod of namespace " + namespace
		}
		_, err := fmt.Fprintf(s.Out, "Nothing that went wrong with %s is recorded below %s. (--root-dir names another root directory of an agent.)\n",
			plain.Text(of), strings.Join(roots, " or "))
		return err
	}
	return writeRecorded(s.Out, list)
}

func recordedOf(f *recorder.Recorded) recordedTurn {
	out := recordedTurn{At: f.At, File: f.Path}
	if f.Err != nil {
		out.Error = f.Err.Error()
		return out
	}
	t := f.Turn
	out.Namespace, out.Name, out.UID, out.Wrong = t.Namespace, t.Name, t.UID, t.Wrong
	if n := len(t.Plan); n > 0 {
		out.Decided = strings.TrimPrefix(t.Plan[n-1], "= ")
	}
	return out
}

func writeRecorded(w io.Writer, list []recordedTurn) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "TIME\tPOD\tWENT WRONG\tDECIDED\tFILE")
	for _, l := range list {
		if l.Error != "" {
			l.Wrong, l.Decided = "(the file cannot be read)", l.Error
		}
		fmt.Fprintf(t, "%s\t%s/%s\t%s\t%s\t%s\n", l.At.Local().Format("2006-01-02 15:04:05"), plain.Text(l.Namespace), plain.Text(l.Name),
			plain.Text(l.Wrong), plain.Text(l.Decided), plain.Text(l.File))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, "wherry replay FILE --step says what each rule of the node saw and decided.")
	return err
}
