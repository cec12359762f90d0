package logrotate

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"github.com/wherry-node/wherry/internal/base/hostfs"
)

// compress replaces a file of a log directory by its compressed form. After a failure the file is unchanged.
func compress(ctx context.Context, dir *hostfs.UntrustedDir, name string) (err error) {
	in, err := dir.Open(name)
	if err != nil {
		return fmt.Errorf("open rotated log: %w", err)
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return fmt.Errorf("stat rotated log: %w", err)
	}
	tmp := name + compressed + unfinished
	out, err := dir.Create(tmp, info.Mode().Perm())
	if err != nil {
		return fmt.Errorf("make compressed log: %w", err)
	}
	defer func() {
		if err != nil {
			_ = out.Close()
			_ = dir.Remove(tmp)
		}
	}()
	z := gzip.NewWriter(out)
	if _, err := io.Copy(z, &patient{ctx, in}); err != nil {
		return fmt.Errorf("compress log: %w", err)
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("compress log: %w", err)
	}
	at := unix.NsecToTimeval(info.ModTime().UnixNano())
	if err := unix.Futimes(int(out.Fd()), []unix.Timeval{at, at}); err != nil {
		return fmt.Errorf("set the time of the compressed log: %w", err)
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("compress log: %w", err)
	}
	if err := dir.Rename(tmp, name+compressed); err != nil {
		return fmt.Errorf("name compressed log: %w", err)
	}
	return remove(dir, name)
}

// patient is a reader that fails when its context has ended.
type patient struct {
	ctx context.Context
	r   io.Reader
}

// Read returns an error when the context has ended.
func (p *patient) Read(b []byte) (int, error) {
	if err := p.ctx.Err(); err != nil {
		return 0, err
	}
	return p.r.Read(b)
}
