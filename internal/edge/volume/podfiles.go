package volume

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/inorder"
)

// keptMessages is how many termination message files of one container are kept. There is a file for each attempt, and the agent reads
// only the files of the last attempts.
const keptMessages = 5

// podFiles makes the files that the agent itself makes for a container, and returns their mounts.
func (v *Volumes) podFiles(ctx context.Context, in *MountInput) ([]*runtimeapi.Mount, error) {
	var mounts []*runtimeapi.Mount
	taken := func(path string) bool {
		for i := range in.Container.VolumeMounts {
			if absolute(in.Container.VolumeMounts[i].MountPath) == path {
				return true
			}
		}
		return false
	}
	if in.Hosts != nil && !taken(hostsPath) {
		path, err := v.hostsFile(ctx, in)
		if err != nil {
			return nil, fmt.Errorf("write hosts file: %w", err)
		}
		mounts = append(mounts, &runtimeapi.Mount{ContainerPath: hostsPath, HostPath: path, SelinuxRelabel: true})
	}
	if path := in.Container.TerminationMessagePath; path != "" && !taken(absolute(path)) {
		file, err := v.messageFile(in)
		if err != nil {
			return nil, fmt.Errorf("make termination message file: %w", err)
		}
		mounts = append(mounts, &runtimeapi.Mount{ContainerPath: rooted(path), HostPath: file, SelinuxRelabel: true})
	}
	return mounts, nil
}

// hostsFile writes the hosts file of a pod and returns its path.
func (v *Volumes) hostsFile(ctx context.Context, in *MountInput) (string, error) {
	unlock, err := v.ofHosts.lock(ctx, string(in.Pod.UID))
	if err != nil {
		return "", err
	}
	defer unlock()
	path := v.layout.hosts(in.Pod.UID)
	return path, hostfs.OverwriteUntrusted(path, in.Hosts, 0o644)
}

// messageFile makes the file for the termination message of the next attempt, writable for any user.
func (v *Volumes) messageFile(in *MountInput) (string, error) {
	if err := checkName("container name", in.Container.Name); err != nil {
		return "", err
	}
	dir := filepath.Join(v.layout.containers(in.Pod.UID), in.Container.Name)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", err
	}
	if err := pruneMessages(dir); err != nil {
		return "", err
	}
	var id [4]byte
	rand.Read(id[:])
	path := filepath.Join(dir, hex.EncodeToString(id[:]))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return path, f.Chmod(0o666)
}

// pruneMessages removes termination message files, so that keptMessages files are left after the next file is made: first the empty ones, of attempts that have
// said nothing or could not be made, and then the oldest ones.
func pruneMessages(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) < keptMessages {
		return err
	}
	infos := make([]os.FileInfo, 0, len(entries))
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			infos = append(infos, info)
		}
	}
	said := func(info os.FileInfo) int { return int(min(info.Size(), 1)) }
	inorder.Sort(infos, func(a, b os.FileInfo) int { return cmp.Or(said(a)-said(b), a.ModTime().Compare(b.ModTime())) })
	for i := 0; i <= len(infos)-keptMessages; i++ {
		if err := os.Remove(filepath.Join(dir, infos[i].Name())); err != nil {
			return err
		}
	}
	return nil
}
