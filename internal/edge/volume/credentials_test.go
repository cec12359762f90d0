package volume_test

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/volume"
)

const (
	pemKey   = "-----BEGIN PRIVATE KEY-----\na2V5\n-----END PRIVATE KEY-----\n"
	pemChain = "-----BEGIN CERTIFICATE-----\nbGVhZg==\n-----END CERTIFICATE-----\n"
)

// signers is a fake Credentials.
type signers struct {
	anchors, bundle string
	err             error
	have            []string // one element for each call of PodCertificate: the volume, the index of the source, and the present bundle
}

func (s *signers) TrustAnchors(_ context.Context, _ *v1.Pod, src *v1.ClusterTrustBundleProjection) ([]byte, error) {
	return []byte(*src.Name + ": " + s.anchors), s.err
}

func (s *signers) PodCertificate(_ context.Context, _ *v1.Pod, volume string, source int, have []byte) ([]byte, error) {
	s.have = append(s.have, volume+strconv.Itoa(source)+" "+string(have))
	return []byte(s.bundle), s.err
}

// projectedVolume returns a volume with a bundle at ca/bundle.pem, and with a pod certificate at the given paths.
func projectedVolume(bundlePath, keyPath, chainPath string) v1.Volume {
	name := "roots"
	return vol("v", v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{DefaultMode: ptr(int32(0o444)), Sources: []v1.VolumeProjection{
		{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Name: &name, Path: "ca/bundle.pem"}},
		{PodCertificate: &v1.PodCertificateProjection{CredentialBundlePath: bundlePath, KeyPath: keyPath, CertificateChainPath: chainPath}},
	}}})
}

func newSigners(t *testing.T, s *signers) *fixture {
	t.Helper()
	f := newFixture(t)
	f.Volumes = volume.New(volume.Config{RootDir: f.root, Host: host(t), Objects: f.api, Credentials: s})
	return f
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	s := &signers{anchors: "one", bundle: pemKey + pemChain}
	f := newSigners(t, s)
	p := aPod(projectedVolume("bundle", "key", "chain"))
	setUp(t, f, p)
	v := dir(t, f, p, "v")
	all := map[string]string{
		"ca/bundle.pem": "-r--r--r-- roots: one", "bundle": "-r--r--r-- " + pemKey + pemChain,
		"key": "-r--r--r-- " + pemKey, "chain": "-r--r--r-- " + pemChain,
	}
	wantTree(t, v, all)

	// Changed trust anchors appear in the files. PodCertificate gets the bundle that the volume already contains, as after a restart of
	// the agent.
	s.anchors = "two"
	all["ca/bundle.pem"] = "-r--r--r-- roots: two"
	setUp(t, f, p)
	wantTree(t, v, all)
	if want := "v1 " + pemKey + pemChain; len(s.have) != 2 || s.have[0] != "v1 " || s.have[1] != want {
		t.Errorf("the volume contained %q, want nothing and then %q", s.have, want)
	}

	// If the renewal of a certificate is denied, the files stay as they are.
	s.err = &pod.Lacking{What: pod.LackCertificate, Err: errors.New("denied")}
	err := f.SetUp(t.Context(), volume.Pod{Pod: p})
	wantError(t, err, "v", "sources[1]: denied")
	if pod.LackOf(err) != pod.LackCertificate {
		t.Errorf("lacks %v", pod.LackOf(err))
	}
	wantTree(t, v, all)

	// The volume is a tmpfs, so that the private key is only in memory.
	if (hostfs.Host{}) == host(t) {
		if mounted, err := host(t).IsMountPoint(v); !mounted || err != nil {
			t.Errorf("the volume is not a tmpfs: %v", err)
		}
	}
}

func TestCredentialsInTwoFilesAndForOneUser(t *testing.T) {
	t.Parallel()
	s := &signers{anchors: "one", bundle: pemKey + pemChain}
	f := newSigners(t, s)
	p := aPod(projectedVolume("", "key", "chain"))
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr(int64(4242))}
	needRoot(t)
	setUp(t, f, p)
	setUp(t, f, p)
	wantTree(t, dir(t, f, p, "v"), map[string]string{
		"ca/bundle.pem": "-rw-r----- roots: one", "key": "-rw-r----- " + pemKey, "chain": "-rw-r----- " + pemChain,
	})
	if len(s.have) != 2 || s.have[1] != "v1 "+pemKey+pemChain {
		t.Errorf("the volume contained %q", s.have)
	}
	if owner := ownerOf(t, filepath.Join(dir(t, f, p, "v"), "key")); owner.GID != 4242 {
		t.Errorf("owner %v", owner)
	}
}

func TestCredentialsThatCannotBe(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		s    volume.Credentials
		vol  v1.Volume
		want string
	}{
		"no API server":       {nil, projectedVolume("bundle", "", ""), "clusterTrustBundle: this node has no API server"},
		"no key":              {&signers{bundle: pemChain[:10]}, projectedVolume("bundle", "", ""), "no private key"},
		"a path that escapes": {&signers{bundle: pemKey + pemChain}, projectedVolume("../../bundle", "", ""), "must not start with '..'"},
	} {
		f := newFixture(t)
		f.Volumes = volume.New(volume.Config{RootDir: f.root, Host: host(t), Credentials: tt.s})
		err := f.SetUp(t.Context(), volume.Pod{Pod: aPod(tt.vol)})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}
