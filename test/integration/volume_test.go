package integration

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

const volumeObjects = `
apiVersion: v1
kind: ConfigMap
metadata: {name: conf}
data: {a: one, b: two}
binaryData: {bin: AAEC}
---
apiVersion: v1
kind: Secret
metadata: {name: hidden}
stringData: {user: jo, password: s3cret}
`

// A volume shows ConfigMaps, Secrets, the downward API and a service account token as files, with the modes and items of the spec. When an
// object changes, its files change.
func TestObjectVolumes(t *testing.T) {
	s := newSpace(t)
	s.apply(volumeObjects)
	s.pod("files", `
volumes:
- {name: conf, configMap: {name: conf}}
- {name: items, configMap: {name: conf, defaultMode: 0440, items: [{key: b, path: deep/down/b, mode: 0400}]}}
- {name: hidden, secret: {secretName: hidden, defaultMode: 0400}}
- {name: maybe, secret: {secretName: absent, optional: true}}
- {name: down, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}, {path: cpu, resourceFieldRef: {containerName: main, resource: requests.cpu, divisor: 1m}}]}}
- {name: all, projected: {sources: [{configMap: {name: conf, items: [{key: a, path: a}]}}, {secret: {name: hidden, items: [{key: user, path: user}]}}, {serviceAccountToken: {path: token, audience: somebody, expirationSeconds: 600}}]}}
containers:
- name: main
  image: $busybox
  command: [sleep, "1000"]
  resources: {requests: {cpu: 15m}}
  volumeMounts:
  - {name: conf, mountPath: /conf}
  - {name: items, mountPath: /items}
  - {name: hidden, mountPath: /hidden, readOnly: true}
  - {name: maybe, mountPath: /maybe}
  - {name: down, mountPath: /down}
  - {name: all, mountPath: /all}
  - {name: conf, mountPath: /single, subPath: a}`)
	s.ready("files")
	s.same("files", s.sh("files", `cat /conf/a /conf/b /items/deep/down/b /hidden/user /hidden/password /down/cpu /all/a /all/user /single; md5sum < /conf/bin`),
		"onetwotwojos3cret15onejoone"+"b95f67f61ebb03619622d798f45fc2d3  -\n")
	s.same("labels", s.sh("files", "cat /down/labels"), `app="files"`)
	s.same("modes", s.sh("files", "stat -L -c %a /conf/a /items/deep/down/b /hidden/user /all/token"), "644\n400\n400\n644\n")
	s.same("an absent optional secret", s.sh("files", "ls /maybe"), "")
	s.same("filesystem of a secret", s.sh("files", "stat -f -c %T /hidden"), "tmpfs\n")
	s.contains("audience", s.sh("files", `cut -d. -f2 /all/token | tr _- /+ | base64 -d 2>/dev/null; true`), `"aud":["somebody"]`, `"name":"files"`)
	s.same("service account", s.sh("files", "cat /var/run/secrets/kubernetes.io/serviceaccount/namespace; ls /var/run/secrets/kubernetes.io/serviceaccount"), s.name+"ca.crt\nnamespace\ntoken\n")
	if _, errOut, err := s.try("exec", "files", "--", "sh", "-c", "echo x > /hidden/new"); err == nil {
		t.Errorf("wrote to a read-only mount: %s", errOut)
	}

	s.kubectl("patch", "configmap", "conf", "-p", `{"data":{"a":"changed","c":"three"}}`)
	s.kubectl("patch", "secret", "hidden", "-p", `{"stringData":{"user":"al"}}`)
	s.kubectl("label", "pod", "files", "more=yes")
	s.eventually("changes to arrive", func() error {
		out, _, err := s.try("exec", "files", "--", "sh", "-c", "cat /conf/a /conf/c /hidden/user /all/a /all/user; cat /down/labels")
		if want := "changedthreealchangedalapp=\"files\"\nmore=\"yes\""; err == nil && out != want {
			err = fmt.Errorf("files are %q, want %q", out, want)
		}
		return err
	})
	s.same("a subPath of what changed", s.sh("files", "cat /single"), "one") // a subPath mount gets no updates, as documented
}

// The containers of a pod share an emptyDir. It may be in memory with a size limit, may be mounted by subPath, and is removed with the pod.
func TestEmptyDir(t *testing.T) {
	s := newSpace(t)
	s.pod("scratch", `
volumes: [{name: disk, emptyDir: {}}, {name: mem, emptyDir: {medium: Memory, sizeLimit: 8Mi}}]
containers:
- name: one
  image: $busybox
  command: [sleep, "1000"]
  env: [{name: DIR, value: expanded}]
  volumeMounts: [{name: disk, mountPath: /disk}, {name: mem, mountPath: /mem}, {name: disk, mountPath: /sub, subPath: some/dir}, {name: disk, mountPath: /expr, subPathExpr: x-$(DIR)}]
- {name: two, image: $busybox, command: [sleep, "1000"], volumeMounts: [{name: disk, mountPath: /disk}]}`)
	p := s.ready("scratch")
	s.same("medium", s.sh("scratch", "stat -f -c %T /mem; stat -c %a /disk /mem; df -m /mem | tail -1 | awk '{print $2}'"), "tmpfs\n777\n1777\n8\n")
	s.sh("scratch", "echo hello > /disk/shared; echo sub > /sub/file; echo expr > /expr/file")
	s.same("seen by the other", s.kubectl("exec", "scratch", "-c", "two", "--", "sh", "-c", "cat /disk/shared /disk/some/dir/file /disk/x-expanded/file"), "hello\nsub\nexpr\n")
	dir := filepath.Join(s.env.node.dir, "root", "pods", string(p.UID))
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
	s.kubectl("delete", "pod", "scratch", "--wait=false")
	s.gone("scratch")
	s.eventually("the pod's directory to go", func() error {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			return fmt.Errorf("%s is there: %v", dir, err)
		}
		return nil
	})
}

// A hostPath volume of each type is created, used as it is, or refused with a reason, as documented.
func TestHostPath(t *testing.T) {
	s := newSpace(t)
	dir := s.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("from the host"), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	pod := func(name, path, kind string) {
		s.pod(name, fmt.Sprintf(`
volumes: [{name: v, hostPath: {path: %s, type: %q}}]
containers: [{name: main, image: $busybox, command: [sleep, "1000"], volumeMounts: [{name: v, mountPath: /v}]}]`, path, kind))
	}
	good := map[string][2]string{
		"any": {dir, ""}, "dir": {dir, "Directory"}, "dir-made": {dir + "/made/dir", "DirectoryOrCreate"}, "file": {dir + "/file", "File"},
		"file-made": {dir + "/newfile", "FileOrCreate"}, "socket": {dir + "/socket", "Socket"}, "char": {"/dev/null", "CharDevice"},
	}
	bad := map[string]struct{ path, kind, message string }{
		"no-dir":    {dir + "/none", "Directory", "hostPath type check failed: " + dir + "/none is not a directory"},
		"no-file":   {dir, "File", "hostPath type check failed: " + dir + " is not a file"},
		"no-socket": {dir + "/file", "Socket", "is not a socket file"},
		"no-block":  {"/dev/null", "BlockDevice", "is not a block device"},
	}
	for name, v := range good {
		pod(name, v[0], v[1])
	}
	for name, v := range bad {
		pod(name, v.path, v.kind)
	}
	for name := range good {
		s.ready(name)
	}
	s.same("file", s.sh("file", "cat /v"), "from the host")
	if fi, err := os.Stat(dir + "/made/dir"); err != nil || !fi.IsDir() || fi.Mode().Perm() != 0o755 {
		t.Errorf("DirectoryOrCreate made %v, %v", fi, err)
	}
	if fi, err := os.Stat(dir + "/newfile"); err != nil || !fi.Mode().IsRegular() || fi.Mode().Perm() != 0o644 {
		t.Errorf("FileOrCreate made %v, %v", fi, err)
	}
	for name, v := range bad {
		s.contains(name, s.event(name, "FailedMount").Message, `MountVolume.SetUp failed for volume "v"`, v.message)
	}
}

// A subPath never leads out of its volume, not even through a symbolic link that a container made.
func TestSubPathEscape(t *testing.T) {
	s := newSpace(t)
	s.pod("escape", `
volumes: [{name: v, emptyDir: {}}]
initContainers: [{name: lay, image: $busybox, command: [sh, -c, 'ln -s / /v/out; ln -s /etc /v/etc'], volumeMounts: [{name: v, mountPath: /v}]}]
containers: [{name: main, image: $busybox, command: [sleep, "1000"], volumeMounts: [{name: v, mountPath: /host, subPath: out/etc}]}]`)
	p := s.until("escape", "refused", func(p *v1.Pod) bool {
		c := p.Status.ContainerStatuses
		return len(c) == 1 && c[0].State.Waiting != nil && c[0].State.Waiting.Reason == "CreateContainerConfigError"
	})
	s.contains("message", p.Status.ContainerStatuses[0].State.Waiting.Message, `volume "v": container "main", volumeMounts[0] at /host: failed to prepare subPath "out/etc"`, "no symbolic link may lead outside")
}

// If the source of a volume is missing, an event says so. The pod starts as soon as the source exists.
func TestMissingVolumeSource(t *testing.T) {
	s := newSpace(t)
	s.pod("waits", `
volumes: [{name: v, secret: {secretName: later}}]
containers: [{name: main, image: $busybox, command: [sh, -c, 'cat /v/key; echo; sleep 1000'], volumeMounts: [{name: v, mountPath: /v}]}]`)
	s.event("waits", "FailedMount", `MountVolume.SetUp failed for volume "v" : secret "later" not found`)
	s.eventually("that kubectl says so", func() error { // the status may come up to 2 s later, together with other changes
		if got := s.kubectl("get", "pod", "waits"); !strings.Contains(got, "ContainerCreating") {
			return errorf("get pod: %s", got)
		}
		return nil
	})
	s.kubectl("create", "secret", "generic", "later", "--from-literal=key=here")
	s.ready("waits")
	s.logged("waits", "here\n")
}

// fsGroup becomes the group of the files in the pod's volumes. A mount that is made on the host appears in a container with
// mountPropagation.
func TestFSGroup(t *testing.T) {
	s := newSpace(t)
	s.apply(volumeObjects)
	s.pod("grouped", `
securityContext: {runAsUser: 1234, runAsGroup: 2345, fsGroup: 3456, supplementalGroups: [4567]}
volumes: [{name: disk, emptyDir: {}}, {name: hidden, secret: {secretName: hidden, defaultMode: 0400}}]
containers: [{name: main, image: $busybox, command: [sleep, "1000"], volumeMounts: [{name: disk, mountPath: /disk}, {name: hidden, mountPath: /hidden}]}]`)
	s.ready("grouped")
	s.same("id", s.sh("grouped", "id -u; id -g; id -G"), "1234\n2345\n2345 3456 4567\n")
	s.same("disk", s.sh("grouped", "stat -c '%g %A' /disk; touch /disk/f; stat -c '%u %g' /disk/f"), "3456 drwxrwsrwx\n1234 3456\n")
	s.same("secret", s.sh("grouped", "stat -L -c '%u %g %a' /hidden/user; cat /hidden/user"), "0 3456 440\njo")
	s.contains("token is readable", s.sh("grouped", "cat /var/run/secrets/kubernetes.io/serviceaccount/token"), "ey")
}
