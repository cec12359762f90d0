package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/wherry-node/wherry/internal/base/filewatch"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// Plugin is what a plugin says of itself.
type Plugin struct {
	Type, Name string
	// Endpoint is the socket of the plugin's own service.
	Endpoint string
	Versions []string
}

// Handler takes the plugins of one type.
type Handler interface {
	// Register takes a plugin. It may take long, and ends with ctx. The plugin is told the error.
	Register(ctx context.Context, p Plugin) error
	// Deregister is called when the socket of a registered plugin is gone. A socket that is made again is only registered again.
	Deregister(ctx context.Context, p Plugin)
}

// Config configures a Watcher.
type Config struct {
	// Dir is the directory plugins_registry. It is made if it is missing.
	Dir string
	// Handlers has the handler for each type of plugins.
	Handlers map[string]Handler
	Log      *slog.Logger
}

const (
	// The directory is read this often even if the kernel reports no change, because it may lose events.
	readEvery = time.Minute
	// maxSockets bounds how many plugins a node has. maxDepth bounds the directories in the directory.
	maxSockets, maxDepth = 256, 4
	askWithin            = 10 * time.Second
	firstWait, longest   = 500 * time.Millisecond, time.Minute
	maxAnswer            = 64 << 10
)

// Watcher registers plugins.
type Watcher struct {
	cfg Config
	wg  sync.WaitGroup
}

// New returns a Watcher.
func New(cfg Config) *Watcher { return &Watcher{cfg: cfg} }

// identity tells a socket from a later one at the same path.
type identity struct {
	inode [2]uint64
	made  time.Time
}

// watched is one socket. Its goroutine registers the plugin and waits for the end of the socket.
type watched struct {
	id     identity
	cancel context.CancelCauseFunc
	gone   bool // the socket is gone, and its plugin is being deregistered
	ended  chan struct{}
}

// over reports whether nothing is left of a socket that is gone.
func (s *watched) over() bool {
	select {
	case <-s.ended:
		return s.gone
	default:
		return false
	}
}

// errRemade is why the work on a socket ends if there is a new one at its path.
var errRemade = errors.New("the socket was made again")

// Run registers plugins until ctx ends. Then it leaves them as they are: the next agent registers them again.
func (w *Watcher) Run(ctx context.Context) error {
	defer w.wg.Wait()
	kernel, err := filewatch.New(w.cfg.Dir)
	if err != nil {
		w.cfg.Log.Warn("changes of the plugins' directory are only seen once a minute", "dir", w.cfg.Dir, "err", err)
	}
	defer kernel.Close()
	sockets := map[string]*watched{}
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	for followed := []string{w.cfg.Dir}; ; {
		if err := os.MkdirAll(w.cfg.Dir, 0o750); err != nil {
			w.cfg.Log.Error("the plugins' directory cannot be made; trying again", "dir", w.cfg.Dir, "err", err)
		}
		kernel.SetPaths(followed...)
		kernel.Follow() // before the directories are read: no event reports what was there before
		found, dirs := w.scan()
		for path, s := range sockets {
			if _, there := found[path]; !there && !s.gone {
				s.gone = true
				s.cancel(nil)
			}
			if s.over() {
				delete(sockets, path)
			}
		}
		for path, id := range found {
			before := sockets[path]
			if before != nil && !before.gone && before.id == id {
				continue
			}
			if before != nil && !before.gone {
				before.cancel(errRemade)
			}
			one, cancel := context.WithCancelCause(ctx)
			s := &watched{id: id, cancel: cancel, ended: make(chan struct{})}
			sockets[path] = s
			w.wg.Go(func() {
				defer close(s.ended)
				defer cancel(nil)
				if before != nil { // what the old socket's end has to change comes first
					<-before.ended
				}
				w.keep(ctx, one, path)
			})
		}
		if !slices.Equal(dirs, followed) && ctx.Err() == nil {
			followed = dirs
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-kernel.Events():
		case <-kernel.Errors():
		}
	}
}

// scan lists the sockets in the directory and below, and the directories. Names that begin with a dot are left out: that is how a
// program makes a socket before it gives it its name.
func (w *Watcher) scan() (found map[string]identity, dirs []string) {
	found = map[string]identity{}
	w.scanDir(w.cfg.Dir, 1, found, &dirs)
	return found, dirs
}

func (w *Watcher) scanDir(dir string, depth int, found map[string]identity, dirs *[]string) {
	*dirs = append(*dirs, dir)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.cfg.Log.Warn("the plugins' directory cannot be read", "dir", dir, "err", err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), "."), len(found) >= maxSockets:
		case e.IsDir() && depth < maxDepth && len(*dirs) < maxSockets:
			w.scanDir(path, depth+1, found, dirs)
		case e.Type() == fs.ModeSocket:
			if info, err := e.Info(); err == nil {
				found[path] = identity{inode: inodeOf(info), made: info.ModTime()}
			}
		}
	}
}

// keep registers the plugin of a socket, waits until the socket is gone, and ends the registration. ctx is that of the agent, and
// one that of the socket.
func (w *Watcher) keep(ctx, one context.Context, path string) {
	for wait, said := firstWait, ""; ; wait = min(2*wait, longest) {
		p, err := w.register(one, path)
		if err == nil {
			w.cfg.Log.Info("plugin registered", "plugin", p.Name, "type", p.Type, "endpoint", p.Endpoint)
			<-one.Done()
			if ctx.Err() == nil && context.Cause(one) != errRemade {
				w.cfg.Log.Info("the plugin's socket is gone", "plugin", p.Name, "socket", path)
				w.cfg.Handlers[p.Type].Deregister(ctx, p)
			}
			return
		}
		if one.Err() != nil {
			return
		}
		if text := err.Error(); text != said {
			said = text
			w.cfg.Log.Warn("plugin not registered; trying again", "socket", path, "plugin", p.Name, "err", err)
		}
		select {
		case <-one.Done():
			return
		case <-time.After(wait):
		}
	}
}

// register asks a plugin who it is, hands it to its handler, and tells it the result.
func (w *Watcher) register(ctx context.Context, path string) (p Plugin, err error) {
	conn, err := grpc.NewClient("passthrough:///"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		}), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return p, fmt.Errorf("connect: %w", err)
	}
	defer conn.Close()
	client := registration.NewRegistrationClient(conn)
	asking, cancel := context.WithTimeout(ctx, askWithin)
	info, err := client.GetInfo(asking, &registration.InfoRequest{})
	cancel()
	if err != nil {
		return p, fmt.Errorf("GetInfo: %s", pod.Text(status.Convert(err).Message()))
	}
	p = Plugin{Type: info.Type, Name: info.Name, Endpoint: info.Endpoint, Versions: info.SupportedVersions}
	if p.Endpoint == "" {
		p.Endpoint = path
	}
	err = w.handle(ctx, p)
	said := &registration.RegistrationStatus{PluginRegistered: err == nil}
	if err != nil {
		said.Error = pod.Text(err.Error())
	}
	telling, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	if _, told := client.NotifyRegistrationStatus(telling, said); told != nil && err == nil {
		// The plugin works, although it has not heard so.
		w.cfg.Log.Warn("plugin registered, but it could not be told", "plugin", p.Name, "err", pod.Text(status.Convert(told).Message()))
	}
	return p, err
}

// maxName bounds the name of a plugin. It is that of a CSI driver.
const maxName = 63

func (w *Watcher) handle(ctx context.Context, p Plugin) error {
	h := w.cfg.Handlers[p.Type]
	switch {
	case h == nil:
		return fmt.Errorf("plugins of type %q are not supported by this node agent", pod.TextMax(p.Type, maxName))
	case p.Name == "" || len(p.Name) > maxName || strings.ContainsAny(p.Name, "/\x00") || p.Name == "." || p.Name == "..":
		return fmt.Errorf("name %q of the plugin must have 1 to %d characters and no '/'", pod.TextMax(p.Name, 2*maxName), maxName)
	case !filepath.IsAbs(p.Endpoint):
		return fmt.Errorf("endpoint %q must be an absolute path of a socket", pod.TextMax(p.Endpoint, 256))
	}
	return h.Register(ctx, p)
}
