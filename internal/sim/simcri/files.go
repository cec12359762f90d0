package simcri

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// These bound the files that are copied into one container.
const (
	maxFiles     = 1000    // files and directories
	maxFileBytes = 4 << 20 // of the contents and the names of all
)

// files are the files and directories that were copied into a container. They end with the container. The lock of the runtime guards them.
type files struct {
	entries map[string]file // by absolute path
	bytes   int             // of all contents and names
}

// file is a regular file or a directory.
type file struct {
	mode  int64
	at    time.Time
	dir   bool
	bytes []byte
}

// put adds a file or a directory, or replaces one.
func (f *files) put(name string, add file) error {
	old, had := f.entries[name]
	after := f.bytes + len(add.bytes) - len(old.bytes)
	if !had {
		after += len(name)
	}
	switch {
	case !had && len(f.entries) >= maxFiles:
		return fmt.Errorf("%s: a simulated container keeps at most %d copied files", name, maxFiles)
	case after > maxFileBytes:
		return fmt.Errorf("%s: a simulated container keeps at most %d MiB of copied files", name, maxFileBytes>>20)
	}
	f.entries[name], f.bytes = add, after
	return nil
}

// clone returns a copy, which needs no lock.
func (f *files) clone() *files {
	if f == nil {
		return nil
	}
	return &files{entries: maps.Clone(f.entries), bytes: f.bytes}
}

// below returns the paths of a file or directory and of everything in it, sorted.
func (f *files) below(name string) (out []string) {
	if f == nil {
		return nil
	}
	for _, p := range slices.Sorted(maps.Keys(f.entries)) {
		if p == name || strings.HasPrefix(p, strings.TrimSuffix(name, "/")+"/") {
			out = append(out, p)
		}
	}
	return out
}

// read returns the content of a regular file.
func (f *files) read(name string) ([]byte, bool) {
	if f == nil {
		return nil, false
	}
	found, ok := f.entries[path.Clean("/"+name)]
	return found.bytes, ok && !found.dir
}

// list returns the names in a directory, or the path itself if it is a file.
func (f *files) list(dir string) (out []string) {
	at := path.Clean("/" + dir)
	for _, p := range f.below(at) {
		if p == at && !f.entries[p].dir {
			return []string{dir}
		}
		if name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(p, at), "/"), "/"); name != "" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// usualDirs are directories that every simulated container has.
var usualDirs = []string{"/", "/bin", "/etc", "/home", "/mnt", "/opt", "/root", "/run", "/srv", "/tmp", "/usr", "/var", "/var/tmp"}

// isDir reports whether a container has a directory: a usual one, a mount or one above it, or one that was copied into it.
func isDir(name string, f *files, mounts []*runtimeapi.Mount) bool {
	name = path.Clean("/" + name)
	if slices.Contains(usualDirs, name) {
		return true
	}
	for _, m := range mounts {
		if at := path.Clean("/" + m.ContainerPath); at == name || strings.HasPrefix(at, name+"/") {
			return true
		}
	}
	in := f.below(name)
	return len(in) > 0 && (in[0] != name || f.entries[name].dir)
}

// copying is what a command does with files if it is one of those that kubectl cp runs: test -d PATH, tar -x from its standard input, or tar -c to
// its standard output. It is nil for any other command.
type copying func(ctx context.Context, in io.Reader, out, errOut io.Writer) (code int32)

// copies returns what the command cmd copies in the container id. The caller must not hold the lock.
func (r *Runtime) copies(id string, cmd []string) copying {
	if len(cmd) == 3 && cmd[0] == "test" && cmd[1] == "-d" {
		return func(context.Context, io.Reader, io.Writer, io.Writer) int32 {
			r.mu.Lock()
			defer r.mu.Unlock()
			if c := find(r.containers, id); c != nil && isDir(cmd[2], c.files, c.mounts) {
				return 0
			}
			return 1
		}
	}
	t, ok := parseTar(cmd)
	switch {
	case !ok:
		return nil
	case t.extracts:
		return func(ctx context.Context, in io.Reader, _, errOut io.Writer) int32 {
			return said(errOut, r.unpack(ctx, id, t.dir, in))
		}
	}
	return func(_ context.Context, _ io.Reader, out, errOut io.Writer) int32 {
		return said(errOut, r.pack(id, t.dir, t.paths, out))
	}
}

// said writes an error of tar, and returns the exit code.
func said(errOut io.Writer, err error) int32 {
	if err == nil {
		return 0
	}
	_, _ = fmt.Fprintf(errOut, "tar: %v\n", err)
	return 1
}

// tarCommand is a command line of tar whose archive is the standard input or output.
type tarCommand struct {
	extracts bool
	dir      string
	paths    []string
}

// parseTar reads the command lines of tar that kubectl cp uses, and others of the same form.
func parseTar(cmd []string) (t tarCommand, ok bool) {
	if len(cmd) < 3 || path.Base(cmd[0]) != "tar" {
		return t, false
	}
	t.dir = "/"
	archive, creates := "", false
	for args, first := cmd[1:], true; len(args) > 0; args = args[1:] {
		a := args[0]
		switch {
		case strings.HasPrefix(a, "--"):
		case a == "-C" && len(args) > 1:
			t.dir, args = path.Clean("/"+args[1]), args[1:]
		case first || len(a) > 1 && a[0] == '-':
			t.extracts, creates, first = t.extracts || strings.Contains(a, "x"), creates || strings.Contains(a, "c"), false
			if strings.Contains(a, "f") && len(args) > 1 {
				archive, args = args[1], args[1:]
			}
		default:
			t.paths = append(t.paths, a)
		}
	}
	return t, archive == "-" && t.extracts != creates
}

// unpack reads an archive and puts its files below dir. Only regular files and directories are kept.
func (r *Runtime) unpack(ctx context.Context, id, dir string, in io.Reader) error {
	if in == nil {
		return errors.New("the standard input is not attached")
	}
	ended, stop := r.ended(id)
	defer stop()
	result := make(chan error, 1)
	got := map[string]file{}
	go func() { // ends when the stream server closes the connection
		err := readTar(in, dir, got)
		_, _ = io.Copy(io.Discard, in) // otherwise a client may wait until somebody reads the rest
		result <- err
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-ended:
		return errors.New("the container has ended")
	case err := <-result:
		if err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.runningContainer(id)
	if err != nil {
		return err
	}
	if c.files == nil {
		c.files = &files{entries: map[string]file{}}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if err := c.files.put(name, got[name]); err != nil {
			return err
		}
	}
	return nil
}

// readTar adds the regular files and directories of an archive to into, by their paths below dir.
func readTar(in io.Reader, dir string, into map[string]file) error {
	bounded := files{entries: into}
	archive := tar.NewReader(in)
	for {
		h, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeDir:
			continue
		}
		content, err := io.ReadAll(io.LimitReader(archive, maxFileBytes+1))
		if err != nil {
			return err
		}
		f := file{mode: h.Mode, at: h.ModTime, dir: h.Typeflag == tar.TypeDir, bytes: content}
		if err := bounded.put(path.Join(dir, path.Clean("/"+h.Name)), f); err != nil {
			return err
		}
	}
}

// pack writes an archive of files and directories. As those of tar, its names have no slash at the front.
func (r *Runtime) pack(id, dir string, paths []string, out io.Writer) error {
	if len(paths) == 0 {
		return errors.New("there is no file to archive")
	}
	var b bytes.Buffer
	archive := tar.NewWriter(&b)
	r.mu.Lock()
	err := r.packLocked(id, dir, paths, archive)
	r.mu.Unlock()
	if closeErr := archive.Close(); err == nil {
		err = closeErr
	}
	if _, writeErr := out.Write(b.Bytes()); err == nil {
		err = writeErr
	}
	return err
}

func (r *Runtime) packLocked(id, dir string, paths []string, archive *tar.Writer) error {
	c, err := r.runningContainer(id)
	if err != nil {
		return err
	}
	for _, p := range paths {
		if !path.IsAbs(p) {
			p = path.Join(dir, p)
		}
		found := c.files.below(path.Clean(p))
		if len(found) == 0 {
			return fmt.Errorf("%s: Cannot stat: No such file or directory (a simulated container has only files that were copied into it)", p)
		}
		for _, name := range found {
			f := c.files.entries[name]
			h := &tar.Header{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(name, "/"), Mode: f.mode, ModTime: f.at, Size: int64(len(f.bytes))}
			if f.dir {
				h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
			}
			if err := archive.WriteHeader(h); err != nil {
				return err
			}
			if _, err := archive.Write(f.bytes); err != nil {
				return err
			}
		}
	}
	return nil
}
