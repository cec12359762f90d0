package hostfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// dig makes a chain of directories below dir, each with a file if files is set. It uses descriptors, because no path is
// that long. It returns the bytes on disk and the inodes.
func dig(t *testing.T, dir string, levels int, name string, files bool) (bytes, inodes uint64) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	for range levels {
		must(t, unix.Mkdirat(fd, name, 0o755))
		next, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		must(t, err)
		unix.Close(fd)
		fd = next
		inodes++
		if files {
			f, err := unix.Openat(fd, "file", unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
			must(t, err)
			_, err = unix.Write(f, []byte("content"))
			must(t, err, unix.Close(f))
			inodes++
		}
	}
	var st unix.Stat_t
	must(t, unix.Fstat(fd, &st), unix.Close(fd))
	return uint64(levels) * uint64(st.Blocks) * 512, inodes
}

// child runs the calling test again in a process of its own, whose limits it may change. It reports whether it is in
// that process.
func child(t *testing.T) bool {
	t.Helper()
	const mark = "WHERRY_TEST_CHILD"
	if os.Getenv(mark) == t.Name() {
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$", "-test.v")
	cmd.Env = append(os.Environ(), mark+"="+t.Name())
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("in a process of its own: %v\n%s", err, out)
	}
	return false
}

// memoryDir returns a temporary directory in memory, if possible: a disk takes a minute for 100,000 directories.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "wherry-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = Host{}.RemoveTree(context.WithoutCancel(t.Context()), dir) })
	return dir
}

// smallHeap fails the test if the heap of this process was ever larger than 64 MiB.
func smallHeap(t *testing.T) {
	t.Helper()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	t.Logf("the heap took %d KiB", m.HeapSys>>10)
	if m.HeapSys > 64<<20 { // HeapSys never shrinks, so it is the peak
		t.Errorf("the heap took %d MiB", m.HeapSys>>20)
	}
}

// A container nests 100,000 directories. With 64 descriptors and a heap of 64 MiB, the tree is measured exactly and
// removed.
func TestDeepTreesNeedFewDescriptorsAndLittleMemory(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]Host{"openat2": {}, "walk": {noOpenat2: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !child(t) {
				return
			}
			must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 64, Max: 64}))
			dir := filepath.Join(memoryDir(t), "tree")
			must(t, os.Mkdir(dir, 0o755))
			top, _, err := h.DiskUsage(t.Context(), dir)
			must(t, err)
			levels := 100_000
			if h.noOpenat2 { // without openat2 this takes three times as long
				levels = 20_000
			}
			want, inodes := dig(t, dir, levels, strings.Repeat("d", 200), false)
			got, found, err := h.DiskUsage(t.Context(), dir)
			if err != nil || got != top+want || found != 1+inodes {
				t.Errorf("measured %d bytes, %d inodes, %v; want %d and %d", got, found, err, top+want, 1+inodes)
			}
			must(t, h.RemoveTree(t.Context(), dir))
			if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("still there: %v", err)
			}
			smallHeap(t)
		})
	}
}

// A directory has 100,000 entries, half of them names of one file. The agent does not read the whole directory into memory and
// remembers no name.
func TestWideTreesNeedLittleMemory(t *testing.T) {
	t.Parallel()
	if !child(t) {
		return
	}
	h, dir := Host{}, filepath.Join(memoryDir(t), "tree")
	must(t, os.Mkdir(dir, 0o755))
	long := strings.Repeat("n", 200)
	const entries, most = 100_000, 30_000 // most is how many names a file may have on any file system
	made, file := 0, ""
	for i := range entries {
		name := filepath.Join(dir, fmt.Sprint(long, i))
		if i%2 == 0 || i%most == 1 {
			must(t, os.WriteFile(name, []byte("x"), 0o644))
			made++
			file = name
			continue
		}
		must(t, os.Link(file, name))
	}
	if _, inodes, err := h.DiskUsage(t.Context(), dir); err != nil || inodes != uint64(made+1) {
		t.Errorf("%d inodes, %v; want %d", inodes, err, made+1)
	}
	must(t, h.RemoveTree(t.Context(), dir))
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
	smallHeap(t)
}

// Trees of all shapes are measured exactly and removed, also if maxLevels is small, so that RemoveTree moves deeper directories to
// the top.
func TestTreesOfManyShapes(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, h Host) {
		dice := rand.New(rand.NewPCG(1, 2))
		for round := range 20 {
			dir := filepath.Join(memoryDir(t), "tree")
			must(t, os.Mkdir(dir, 0o755))
			dirs, inodes, deepest := []string{dir}, uint64(1), 0
			for range 400 {
				at := dirs[len(dirs)-1-dice.IntN(min(len(dirs), 1+dice.IntN(20)))]
				name := filepath.Join(at, fmt.Sprint("n", dice.IntN(1000)))
				if _, err := os.Lstat(name); err == nil {
					continue
				}
				inodes++
				switch dice.IntN(4) {
				case 0:
					must(t, os.WriteFile(name, nil, 0o000))
				case 1:
					must(t, os.Symlink("/usr", name))
				default:
					must(t, os.Mkdir(name, 0o700))
					dirs = append(dirs, name)
					deepest = max(deepest, strings.Count(name[len(dir):], "/"))
				}
			}
			if _, found, err := h.DiskUsage(t.Context(), dir); err != nil || found != inodes {
				t.Fatalf("round %d: %d inodes, %v; want %d", round, found, err, inodes)
			}
			h := h
			if round%2 == 1 {
				h.maxLevels = 2 + dice.IntN(10)
				if _, _, err := h.DiskUsage(t.Context(), dir); deepest >= h.maxLevels && !errors.Is(err, ErrTooDeep) {
					t.Fatalf("measuring %d levels where %d are allowed: %v", deepest, h.maxLevels, err)
				}
			}
			if err := h.RemoveTree(t.Context(), dir); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("round %d: still there: %v", round, err)
			}
		}
	})
}

// A directory that cannot be opened does not count as empty.
func TestNoDescriptorLeftIsAnError(t *testing.T) {
	t.Parallel()
	if !child(t) {
		return
	}
	h, dir := Host{}, filepath.Join(t.TempDir(), "tree")
	must(t, os.Mkdir(dir, 0o755))
	dig(t, dir, 20, "d", true)
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 32, Max: 32}))
	var held []int
	for {
		fd, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.EMFILE) {
			break
		}
		must(t, err)
		held = append(held, fd)
	}
	for range 4 { // with 4 free descriptors, DiskUsage can begin but not finish
		must(t, unix.Close(held[len(held)-1]))
		held = held[:len(held)-1]
	}
	if _, _, err := h.DiskUsage(t.Context(), dir); !errors.Is(err, unix.EMFILE) {
		t.Errorf("measured without descriptors: %v", err)
	}
	if err := h.RemoveTree(t.Context(), dir); !errors.Is(err, unix.EMFILE) {
		t.Errorf("removed without descriptors: %v", err)
	}
	for _, fd := range held {
		must(t, unix.Close(fd))
	}
	must(t, h.RemoveTree(t.Context(), dir))
}

// RemoveTree keeps the one mount in a wide and deep tree, and the directories above it, and removes everything else. DiskUsage does not
// measure the mount.
func TestOnlyTheMountAndTheWayToItStay(t *testing.T) {
	t.Parallel()
	needRoot(t)
	ways(t, func(t *testing.T, h Host) {
		dir := filepath.Join(t.TempDir(), "tree")
		way := filepath.Join(dir, strings.Repeat("w/", 20))
		must(t, os.MkdirAll(filepath.Join(way, "mounted"), 0o755))
		for up := way; up != dir; up = filepath.Dir(up) {
			for i := range 30 {
				must(t, os.Mkdir(filepath.Join(up, fmt.Sprint("a", i)), 0o755), os.WriteFile(filepath.Join(up, fmt.Sprint("z", i)), nil, 0o644))
			}
		}
		point := filepath.Join(way, "mounted")
		_, before, err := h.DiskUsage(t.Context(), dir)
		must(t, err)
		mountTmpfs(t, h, point, 0)
		t.Cleanup(func() { _ = h.Unmount(point) })
		must(t, os.WriteFile(filepath.Join(point, "kept"), nil, 0o644))
		if _, inodes, err := h.DiskUsage(t.Context(), dir); err != nil || inodes != before-1 {
			t.Errorf("%d inodes, %v; want %d: all but what the mount hides", inodes, err, before-1)
		}
		err = h.RemoveTree(t.Context(), dir)
		if !errors.Is(err, ErrMounted) || !strings.Contains(err.Error(), point) {
			t.Errorf("error %v; want ErrMounted that names %s", err, point)
		}
		left := 0
		must(t, filepath.WalkDir(dir, func(string, fs.DirEntry, error) error { left++; return nil }))
		if want := 1 + 20 + 2; left != want {
			t.Errorf("%d entries are left, want %d: the way to the mount, and what is in it", left, want)
		}
	})
}

// chainTo opens the directory below tree in which lies the level-th directory of a chain of directories "d". It follows no link, as the
// process of a container whose root is the tree could not follow one to the host. makes says whether it makes missing directories.
func chainTo(tree string, level int, makes bool) (int, error) {
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Open(tree, flags, 0)
	if errors.Is(err, unix.ENOENT) && makes {
		if err = os.Mkdir(tree, 0o755); err == nil {
			fd, err = unix.Open(tree, flags, 0)
		}
	}
	for i := 1; i < level && err == nil; i++ {
		if makes {
			_ = unix.Mkdirat(fd, "d", 0o755)
		}
		var next int
		next, err = unix.Openat(fd, "d", flags, 0)
		unix.Close(fd)
		fd = next
	}
	return fd, err
}

// attack moves directories of a tree out of it and back, swaps others for links to a directory of the host, and puts new ones in
// their place, until stop is called. precious is outside of the tree, and RemoveTree must not touch it. Nor does the attack itself: it
// works with descriptors, because a path through one of its own links would lead it into precious.
func attack(t *testing.T, tree, aside, precious string) (moves *atomic.Int64, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	moves = new(atomic.Int64)
	out, err := unix.Open(aside, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	go func() {
		defer close(ended)
		defer unix.Close(out)
		for i := 0; ctx.Err() == nil; i++ {
			if at, err := chainTo(tree, 1+i%30, false); err == nil {
				if unix.Renameat(at, "d", out, "out") == nil {
					moves.Add(1)
				}
				if i%3 == 0 {
					_ = unix.Symlinkat(precious, at, "d")
				}
				_ = unix.Renameat2(out, "out", at, "d", unix.RENAME_EXCHANGE)
				_ = unix.Renameat(out, "out", at, "d")
				unix.Close(at)
			}
			_ = os.RemoveAll(filepath.Join(aside, "out"))
			if at, err := chainTo(tree, 31, true); err == nil {
				unix.Close(at)
			}
		}
	}()
	return moves, func() { cancel(); <-ended }
}

// While a container moves directories of the tree, swaps them for links and makes new ones, RemoveTree removes nothing
// outside and DiskUsage counts nothing outside.
func TestTreesUnderAttack(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, h Host) {
		base := t.TempDir()
		tree, aside, precious := filepath.Join(base, "tree"), filepath.Join(base, "aside"), filepath.Join(base, "precious")
		must(t, os.MkdirAll(tree, 0o755), os.Mkdir(aside, 0o755), os.MkdirAll(precious+"/d/d", 0o755))
		must(t, os.WriteFile(filepath.Join(precious, "d/kept"), make([]byte, 16<<20), 0o644))
		must(t, os.WriteFile(filepath.Join(base, "kept"), nil, 0o644), os.WriteFile(filepath.Join(aside, "kept"), nil, 0o644))
		moves, stop := attack(t, tree, aside, precious)
		late := time.Now().Add(2 * time.Minute)
		for i := 0; (i < 300 || moves.Load() < 300) && time.Now().Before(late); i++ {
			if i >= 300 {
				<-time.After(time.Millisecond) // the attack is slow, so give it time
			}
			bytes, _, err := h.DiskUsage(t.Context(), tree)
			if bytes >= 16<<20 {
				t.Fatalf("measured %d bytes (%v): more than is in the tree", bytes, err)
			}
			if i%3 == 0 {
				_ = h.RemoveTree(t.Context(), tree) // an error is possible, because the attack adds entries
			}
		}
		stop()
		if moves.Load() == 0 {
			t.Error("no attack: nothing was moved")
		}
		for _, kept := range []string{filepath.Join(precious, "d/kept"), filepath.Join(precious, "d/d"), filepath.Join(base, "kept"), filepath.Join(aside, "kept")} {
			if _, err := os.Lstat(kept); err != nil {
				t.Errorf("removed outside of the tree: %v", err)
			}
		}
		must(t, h.RemoveTree(t.Context(), tree))
	})
}

// A directory is moved out of the tree while a walk is in it, deeper than the walk keeps directories open. The walk does not
// follow ".." to the new parent.
func TestTheWayUpIsChecked(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, h Host) {
		base := t.TempDir()
		tree, outside := filepath.Join(base, "tree"), filepath.Join(base, "outside")
		deep := tree + strings.Repeat("/d", 20)
		must(t, os.MkdirAll(deep, 0o755), os.Mkdir(outside, 0o755))
		fd, err := unix.Open(tree, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		must(t, err)
		d, err := h.begin(fd)
		must(t, err)
		defer d.close()
		for range 20 {
			must(t, d.enter("d"))
		}
		must(t, os.Rename(tree+strings.Repeat("/d", 11), filepath.Join(outside, "d")))
		for range 30 {
			if err = d.leave(); err != nil {
				break
			}
		}
		if !errors.Is(err, ErrMoved) || d.depth() != 12 {
			t.Errorf("at depth %d: %v; want ErrMoved at 12", d.depth(), err)
		}
		must(t, d.restart())
		if d.depth() != 1 {
			t.Errorf("after a restart at depth %d", d.depth())
		}
	})
}

// A directory is removed while a walk is below it, and a directory elsewhere gets its inode number. The walk does not take that one
// for the directory from which it came.
func TestAnotherDirectoryWithTheSameInode(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, h Host) {
		base := t.TempDir()
		tree, outside := filepath.Join(base, "tree"), filepath.Join(base, "outside")
		must(t, os.MkdirAll(tree+strings.Repeat("/d", 20), 0o755), os.Mkdir(outside, 0o755))
		fd, err := unix.Open(tree, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		must(t, err)
		d, err := h.begin(fd)
		must(t, err)
		defer d.close()
		for range 20 {
			must(t, d.enter("d"))
		}
		left := tree + strings.Repeat("/d", 10)
		var old unix.Stat_t
		must(t, unix.Stat(left, &old))
		must(t, os.Rename(left+"/d", filepath.Join(base, "below")), os.Remove(left))
		twin := ""
		for i := 0; twin == "" && i < 1000; i++ {
			var st unix.Stat_t
			dir := filepath.Join(outside, strconv.Itoa(i))
			must(t, os.Mkdir(dir, 0o755), unix.Stat(dir, &st))
			if st.Ino == old.Ino {
				twin = dir
			}
		}
		if twin == "" {
			t.Skip("this file system does not use the number of a removed directory again")
		}
		must(t, os.Rename(filepath.Join(base, "below"), filepath.Join(twin, "d")))
		for range 30 {
			if err = d.leave(); err != nil {
				break
			}
		}
		if !errors.Is(err, ErrMoved) || d.depth() != 12 {
			t.Errorf("at depth %d: %v; want ErrMoved at 12", d.depth(), err)
		}
	})
}
