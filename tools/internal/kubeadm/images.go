package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"strings"

	"github.com/wherry-node/wherry/tools/internal/build"
	"github.com/wherry-node/wherry/tools/internal/images"
	"github.com/wherry-node/wherry/tools/internal/proc"
)

// makeImages writes the archive images.tar with the images that kubeadm names, made of the programs of this machine.
func (c *Cluster) makeImages(ctx context.Context) error {
	names, err := c.imageNames(ctx)
	if err != nil {
		return err
	}
	kubernetes, err := kubernetesFiles(ctx, c.bin("images/kubernetes"))
	if err != nil {
		return err
	}
	coredns, err := os.ReadFile(c.bin("images/coredns"))
	if err != nil {
		return err
	}
	pause, err := os.ReadFile(c.bin("images/pause"))
	if err != nil {
		return err
	}
	var set []images.Image
	for _, name := range names {
		image := images.Image{Reference: name, Env: []string{images.SearchPath}}
		switch path.Base(repository(name)) {
		case "coredns":
			image.Files, image.Entrypoint = []images.File{{Path: "coredns", Mode: 0o755, Data: coredns}}, []string{"/coredns"}
		case "pause":
			image.Files, image.Entrypoint = []images.File{{Path: "pause", Mode: 0o755, Data: pause}}, []string{"/pause"}
		default: // their layer is one blob of the archive
			image.Files = kubernetes
		}
		set = append(set, image)
	}
	return images.WriteArchiveFile(c.path("images.tar"), set)
}

// imageNames returns the references of the images of a cluster, as kubeadm lists them.
func (c *Cluster) imageNames(ctx context.Context) ([]string, error) {
	link := c.path("kubeadm") // the program is kubeadm if this is its name
	if err := os.Symlink(c.bin("images/kubernetes"), link); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	list, err := proc.Output(exec.CommandContext(ctx, link, "config", "images", "list", "--kubernetes-version="+build.KubernetesVersion), "kubeadm config images list")
	if err != nil {
		return nil, err
	}
	return strings.Fields(list), nil
}

// repository returns an image reference without its tag.
func repository(reference string) string {
	return reference[:strings.LastIndexByte(reference, ':')]
}

// kubernetesFiles returns the files of the images of etcd, the components of the control plane and kube-proxy: the one program with links, nft for
// kube-proxy with the libraries of this machine that it needs, and busybox for a person who looks into the container.
func kubernetesFiles(ctx context.Context, program string) ([]images.File, error) {
	data, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	files, err := images.BusyboxFiles("/bin/busybox")
	if err != nil {
		return nil, err
	}
	files = append(files, images.File{Path: "usr/local/bin/kubernetes", Mode: 0o755, Data: data})
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"} {
		files = append(files, images.File{Path: "usr/local/bin/" + name, Mode: os.ModeSymlink | 0o777, Link: "kubernetes"})
	}
	nft, err := images.Dynamic(ctx, "nft")
	if err != nil {
		return nil, fmt.Errorf("%w (Debian package nftables)", err)
	}
	return append(files, nft...), nil
}
