package images

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// These are references of the development images. The images are imported; none is ever pulled.
const (
	Pause = "registry.k8s.io/pause:3.10"
	Web   = "registry.k8s.io/wherry/web:1"
	// CoreDNS is the image of the cluster's DNS server. Set does not return it; DNS does.
	CoreDNS = "registry.k8s.io/wherry/coredns:1"
)

// Names returns the references of the images that Set makes.
func Names() []string {
	return []string{
		Pause, "docker.io/library/busybox:latest", "docker.io/library/busybox:1.35", "docker.io/library/busybox:1.36",
		"docker.io/library/busybox:1.37", "registry.k8s.io/wherry/web:1", "registry.k8s.io/wherry/web:2",
		"registry.k8s.io/wherry/web:user", "registry.k8s.io/wherry/busybox:user", "registry.k8s.io/wherry/busybox:named",
		"registry.k8s.io/wherry/busybox:volume",
	}
}

// SearchPath is the environment variable PATH of every image that has a shell.
const SearchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Programs are the paths of the programs that the development images contain. All programs are static.
type Programs struct {
	Busybox string // busybox
	Web     string // the program of tools/images/web
	Pause   string // the program of tools/images/pause/pause.c
}

// Set reads the programs and returns the development images:
//
//	registry.k8s.io/pause:3.10                   the sandbox
//	docker.io/library/busybox:latest, :1.35, :1.36, :1.37 (names only: all are Debian's)
//	registry.k8s.io/wherry/web:1, :2             web server on 8080, user root
//	registry.k8s.io/wherry/web:user              same, USER 1000:3000
//	registry.k8s.io/wherry/busybox:user          busybox, USER 1000
//	registry.k8s.io/wherry/busybox:named         busybox, USER alice (1001:1001 and group wheel in /etc/group)
//	registry.k8s.io/wherry/busybox:volume        busybox, VOLUME /data, WORKDIR /work, STOPSIGNAL SIGUSR1
func Set(p Programs) ([]Image, error) {
	busybox, err := BusyboxFiles(p.Busybox)
	if err != nil {
		return nil, err
	}
	web, err := os.ReadFile(p.Web)
	if err != nil {
		return nil, fmt.Errorf("read web server: %w", err)
	}
	pause, err := os.ReadFile(p.Pause)
	if err != nil {
		return nil, fmt.Errorf("read pause: %w", err)
	}
	set := []Image{{
		Reference: Pause, Entrypoint: []string{"/pause"}, Env: []string{SearchPath}, User: "65535:65535",
		Files: []File{{Path: "pause", Mode: 0o755, Data: pause}},
	}}
	for _, tag := range []string{"latest", "1.35", "1.36", "1.37"} {
		set = append(set, busyboxImage("docker.io/library/busybox:"+tag, busybox))
	}
	webFiles := append(busybox[:len(busybox):len(busybox)], File{Path: "web", Mode: 0o755, Data: web})
	for _, web := range [][2]string{{"1", ""}, {"2", ""}, {"user", "1000:3000"}} {
		set = append(set, Image{
			Reference: "registry.k8s.io/wherry/web:" + web[0], Files: webFiles, User: web[1],
			Entrypoint: []string{"/web"}, Env: []string{SearchPath, "PORT=8080"},
		})
	}
	user := busyboxImage("registry.k8s.io/wherry/busybox:user", busybox)
	user.User = "1000"
	named := busyboxImage("registry.k8s.io/wherry/busybox:named", busybox)
	named.User = "alice"
	volume := busyboxImage("registry.k8s.io/wherry/busybox:volume", busybox)
	volume.Volumes, volume.WorkingDir, volume.StopSignal = []string{"/data"}, "/work", "SIGUSR1"
	return append(set, user, named, volume), nil
}

func busyboxImage(reference string, files []File) Image {
	return Image{Reference: reference, Files: files, Cmd: []string{"sh"}, Env: []string{SearchPath}}
}

// BusyboxFiles returns the files of a small system: the static busybox program, and links to it for its commands.
func BusyboxFiles(program string) ([]File, error) {
	data, err := os.ReadFile(program)
	if err != nil {
		return nil, fmt.Errorf("read busybox (Debian package busybox-static): %w", err)
	}
	list, err := exec.Command(program, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("list applets of %s: %w", program, err)
	}
	files := []File{
		{Path: "bin/busybox", Mode: 0o755, Data: data},
		{Path: "etc/passwd", Mode: 0o644, Data: []byte("root:x:0:0:root:/root:/bin/sh\nalice:x:1001:1001:alice:/home/alice:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")},
		{Path: "etc/group", Mode: 0o644, Data: []byte("root:x:0:\nalice:x:1001:\nwheel:x:2000:alice\nnogroup:x:65534:\n")},
		{Path: "home/alice", Mode: os.ModeDir | 0o755, UID: 1001, GID: 1001},
		{Path: "root", Mode: os.ModeDir | 0o700},
		{Path: "tmp", Mode: os.ModeDir | os.ModeSticky | 0o777},
		{Path: "usr/bin/env", Mode: os.ModeSymlink | 0o777, Link: "../../bin/busybox"},
		{Path: "proc", Mode: os.ModeDir | 0o755}, {Path: "sys", Mode: os.ModeDir | 0o755}, {Path: "dev", Mode: os.ModeDir | 0o755},
		{Path: "var/log", Mode: os.ModeDir | 0o755},
	}
	for applet := range strings.FieldsSeq(string(bytes.TrimSpace(list))) {
		if applet != "busybox" && !strings.ContainsRune(applet, '/') {
			files = append(files, File{Path: "bin/" + applet, Mode: os.ModeSymlink | 0o777, Link: "busybox"})
		}
	}
	return files, nil
}

// DNS returns the image of the cluster's DNS server. program is the path of the static CoreDNS program.
func DNS(program string) (Image, error) {
	data, err := os.ReadFile(program)
	if err != nil {
		return Image{}, fmt.Errorf("read CoreDNS: %w", err)
	}
	return Image{
		Reference: CoreDNS, Entrypoint: []string{"/coredns"}, Env: []string{SearchPath}, Files: []File{{Path: "coredns", Mode: 0o755, Data: data}},
	}, nil
}
