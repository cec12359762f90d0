package logrotate

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
)

// compress replaces a file by its compressed form, whole or not at all.
func compress(ctx context.Context, path string) (err error) {
	in, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open rotated log: %w", err)
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return fmt.Errorf("stat rotated log: %w", err)
	}
	tmp := path + compressed + unfinished
	out, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return fmt.Errorf("make compressed log: %w", err)
	}
	defer func() {
		if err != nil {
			_ = out.Close()
			_ = os.Remove(tmp)
		}
	}()
	z := gzip.NewWriter(out)
	if _, err := io.Copy(z, &patient{ctx, in}); err != nil {
		return fmt.Errorf("compress log: %w", err)
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("compress log: %w", err)
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("compress log: %w", err)
	}
	if err := os.Chtimes(tmp, info.ModTime(), info.ModTime()); err != nil {
		return fmt.Errorf("keep time of log: %w", err)
	}
	if err := os.Rename(tmp, path+compressed); err != nil {
		return fmt.Errorf("name compressed log: %w", err)
	}
	return remove(path)
}

// patient reads until its context ends.
type patient struct {
	ctx context.Context
	r   io.Reader
}

// Read ends with the context.
func (p *patient) Read(b []byte) (int, error) {
	if err := p.ctx.Err(); err != nil {
		return 0, err
	}
	return p.r.Read(b)
}
