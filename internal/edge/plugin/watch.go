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
	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/inorder"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// Plugin describes a plugin, as the plugin itself answers to GetInfo.
type Plugin struct {
	Type, Name string
	// Endpoint is the socket of the plugin's own service.
	Endpoint string
	// Versions are the versions of the protocol that the plugin's service supports.
	Versions []string
}

// Handler handles the plugins of one type.
type Handler interface {
	// Register makes the node use a plugin. It may take long, and returns when ctx ends. The plugin gets the text of the error.
	Register(ctx context.Context, p Plugin) error
	// Deregister is called when the socket of a registered plugin is gone. It is not called if there is a new socket of the same path:
	// then only Register is called again.
	Deregister(ctx context.Context, p Plugin)
}

// Config configures a Watcher.
type Config struct {
	// Dir is the directory plugins_registry. Run makes it if it is missing.
	Dir string
	// Handlers has the handler for each type of plugin.
	Handlers map[string]Handler
	Log      *slog.Logger
}

const (
	// readEvery is how often the directory is read even if the kernel reports no change, because the kernel may lose events.
	readEvery = time.Minute
	// settle is the time between an event and the reading of the directory. Further events in this time cause no other reading, so a
	// plugin that makes many files costs little.
	settle = 50 * time.Millisecond
)

// These limits bound the memory and the time that plugins can cost the agent.
const (
	maxSockets  = 256  // plugins of a node
	maxDirs     = 256  // directories in which sockets are looked for
	maxDepth    = 4    // levels of directories, including plugins_registry itself
	maxEntries  = 4096 // entries of one directory; the rest is not read
	askWithin   = 10 * time.Second
	maxAnswer   = 64 << 10 // bytes
	maxHeaders  = 64 << 10 // bytes; gRPC sends the text of an error in headers
	maxType     = 63       // bytes
	maxName     = 63       // bytes; CSI has the same bound for the names of drivers
	maxEndpoint = 107      // bytes; Linux accepts no longer path of a Unix socket
	maxVersions = 16
	maxVersion  = 63 // bytes
)

// The waits before a plugin is asked again: the first, and the longest.
const firstWait, longestWait = 500 * time.Millisecond, time.Minute

// Watcher registers plugins.
type Watcher struct {
	cfg  Config
	wg   sync.WaitGroup
	dial func(ctx context.Context, socket string) (net.Conn, error)
	read func() // called before the directory is read; only tests set it

	mu         sync.Mutex
	found      map[string]identity // the sockets that the last reading of the directory found, by path; nobody changes the map
	registered map[string]bool     // the sockets whose plugins are registered, by path
}

// New returns a Watcher.
func New(cfg Config) *Watcher {
	return &Watcher{cfg: cfg, registered: map[string]bool{}, dial: func(ctx context.Context, socket string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}}
}

// identity distinguishes a socket from a later socket of the same path.
type identity struct {
	inode [2]uint64
	made  time.Time
}

// watched is one socket. Its goroutine registers the plugin and waits for the end of the socket.
type watched struct {
	id     identity
	cancel context.CancelCauseFunc
	gone   bool          // the socket is gone, and its plugin is being deregistered
	ended  chan struct{} // closed when the goroutine has ended
}

// over reports whether the socket is gone and its goroutine has ended.
func (s *watched) over() bool {
	select {
	case <-s.ended:
		return s.gone
	default:
		return false
	}
}

// errRemade is the cause with which the context of a socket is canceled if a new socket has the same path.
var errRemade = errors.New("the socket was made again")

// Run registers plugins until ctx ends. It deregisters no plugin when ctx ends, because the next agent registers all plugins again.
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
		kernel.Follow() // must come before the directories are read, because no event reports a socket that was made before Follow
		if w.read != nil {
			w.read()
		}
		found, dirs := w.scan()
		w.mu.Lock()
		w.found = found
		w.mu.Unlock()
		w.update(ctx, sockets, found)
		if !slices.Equal(dirs, followed) && ctx.Err() == nil {
			followed = dirs
			drop(ctx, kernel) // waits first: a plugin may make and remove directories all the time, and each change makes the loop read them again
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-kernel.Events():
			drop(ctx, kernel)
		case <-kernel.Errors():
			drop(ctx, kernel)
		}
	}
}

// Socket is the socket of a plugin.
type Socket struct {
	Path string
	// Present: the socket is in the directory. Registered: its plugin is registered. A plugin whose socket is gone stays registered until its
	// Handler has deregistered it.
	Present, Registered bool
}

// Sockets returns the sockets of all plugins, sorted by path. It does no IO: it returns what the last reading of the directory found.
func (w *Watcher) Sockets() (all []Socket) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for path := range w.found {
		all = append(all, Socket{Path: path, Present: true, Registered: w.registered[path]})
	}
	for path := range w.registered {
		if _, present := w.found[path]; !present {
			all = append(all, Socket{Path: path, Registered: true})
		}
	}
	inorder.Sort(all, func(a, b Socket) int { return strings.Compare(a.Path, b.Path) })
	return all
}

func (w *Watcher) setRegistered(path string, registered bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if registered {
		w.registered[path] = true
	} else {
		delete(w.registered, path)
	}
}

// drop discards the events of the next 50 ms (settle). The caller then reads the directory, which shows all their changes.
func drop(ctx context.Context, kernel *filewatch.Watcher) {
	end := time.NewTimer(settle)
	defer end.Stop()
	for {
		select {
		case <-end.C:
			return
		case <-ctx.Done():
			return
		case <-kernel.Events():
		case <-kernel.Errors():
		}
	}
}

// update starts a goroutine for each new socket in found and cancels those of sockets that are gone, so that sockets matches found.
func (w *Watcher) update(ctx context.Context, sockets map[string]*watched, found map[string]identity) {
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
		if before != nil && !before.gone {
			if before.id == id {
				continue
			}
			before.cancel(errRemade)
		}
		one, cancel := context.WithCancelCause(ctx)
		s := &watched{id: id, cancel: cancel, ended: make(chan struct{})}
		sockets[path] = s
		w.wg.Go(func() {
			defer close(s.ended)
			defer cancel(nil)
			if before != nil { // wait for the old socket's goroutine, which may still be deregistering the plugin
				<-before.ended
			}
			w.keep(ctx, one, path)
		})
	}
}

// scan lists the sockets in the directory and in the directories below it, and all these directories. It leaves out names that begin with
// a dot, because a program may make a socket under a hidden name, and rename the socket when it is ready.
func (w *Watcher) scan() (found map[string]identity, dirs []string) {
	found = map[string]identity{}
	w.scanDir(w.cfg.Dir, 1, found, &dirs)
	return found, dirs
}

func (w *Watcher) scanDir(dir string, depth int, found map[string]identity, dirs *[]string) {
	*dirs = append(*dirs, dir)
	d, err := hostfs.OpenUntrustedDir(dir, depth-1) // a plugin can replace the directories below the first one
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var entries []fs.DirEntry
	if err == nil {
		defer d.Close()
		entries, err = entriesOf(d)
	}
	if err != nil {
		w.cfg.Log.Warn("the plugins' directory cannot be read", "dir", dir, "err", err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), "."):
		case e.IsDir() && depth < maxDepth && len(*dirs) < maxDirs:
			w.scanDir(path, depth+1, found, dirs)
		case e.Type() == fs.ModeSocket && len(found) < maxSockets:
			if info, err := d.Lstat(e.Name()); err == nil {
				found[path] = identity{inode: inodeOf(info), made: info.ModTime()}
			}
		}
	}
}

// errMore ends the reading of a directory that has more than maxEntries entries.
var errMore = fmt.Errorf("it has more than %d entries: the others are ignored", maxEntries)

// entriesOf lists at most maxEntries entries of a directory, sorted by name.
func entriesOf(d *hostfs.UntrustedDir) (entries []fs.DirEntry, err error) {
	err = d.Each(func(e fs.DirEntry) error {
		if len(entries) == maxEntries {
			return errMore
		}
		entries = append(entries, e)
		return nil
	})
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, err
}

// keep registers the plugin of a socket, waits until the socket is gone, and deregisters the plugin. ctx is the context of the agent,
// and one is the context of the socket.
func (w *Watcher) keep(ctx, one context.Context, path string) {
	for wait, said := firstWait, ""; ; wait = min(2*wait, longestWait) {
		p, err := w.register(one, path)
		if err == nil {
			w.cfg.Log.Info("plugin registered", "plugin", p.Name, "type", p.Type, "endpoint", p.Endpoint)
			w.setRegistered(path, true)
			defer w.setRegistered(path, false)
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

// register asks a plugin for its name and type, calls the handler of that type, and reports the result to the plugin. If the
// plugin's answer was invalid, register returns the zero Plugin.
func (w *Watcher) register(ctx context.Context, path string) (p Plugin, err error) {
	conn, err := grpc.NewClient("passthrough:///plugin", // the dialer knows the socket, whose path need not be a valid URL
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return w.dial(ctx, path) }),
		grpc.WithDisableServiceConfig(), grpc.WithMaxHeaderListSize(maxHeaders), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
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
	if info.Endpoint == "" {
		info.Endpoint = path
	}
	if err = w.check(info); err == nil {
		p = Plugin{Type: info.Type, Name: info.Name, Endpoint: info.Endpoint, Versions: info.SupportedVersions}
		err = w.cfg.Handlers[p.Type].Register(ctx, p)
	}
	said := &registration.RegistrationStatus{PluginRegistered: err == nil}
	if err != nil {
		said.Error = pod.Text(err.Error())
	}
	telling, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	if _, told := client.NotifyRegistrationStatus(telling, said); told != nil && err == nil {
		// The node uses the plugin even if the plugin could not be informed.
		w.cfg.Log.Warn("plugin registered, but the plugin did not accept the notification", "plugin", p.Name, "err", pod.Text(status.Convert(told).Message()))
	}
	return p, err
}

// check returns an error if the node cannot use the plugin's answer. It is strict about the name, because the name becomes a part of
// file paths.
func (w *Watcher) check(info *registration.PluginInfo) error {
	switch {
	case w.cfg.Handlers[info.Type] == nil:
		return fmt.Errorf("plugins of type %q are not supported by this node agent", pod.TextMax(info.Type, maxType))
	case info.Name == "" || len(info.Name) > maxName || strings.ContainsAny(info.Name, "/\x00") || info.Name == "." || info.Name == "..":
		return fmt.Errorf("name %q of the plugin must have 1 to %d characters and no '/'", pod.TextMax(info.Name, 2*maxName), maxName)
	case !filepath.IsAbs(info.Endpoint) || len(info.Endpoint) > maxEndpoint:
		return fmt.Errorf("endpoint %q must be an absolute path of a socket, with at most %d bytes", pod.TextMax(info.Endpoint, 2*maxEndpoint), maxEndpoint)
	case len(info.SupportedVersions) > maxVersions:
		return fmt.Errorf("the plugin names %d versions, more than %d", len(info.SupportedVersions), maxVersions)
	}
	for _, v := range info.SupportedVersions {
		if len(v) > maxVersion {
			return fmt.Errorf("version %q of the plugin has more than %d bytes", pod.TextMax(v, maxVersion), maxVersion)
		}
	}
	return nil
}
