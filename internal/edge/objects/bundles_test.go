package objects

import (
	"context"
	"encoding/pem"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// block returns a PEM block, as a signer would write it: with a comment before it and a header.
func block(content string) string {
	b := pem.EncodeToMemory(&pem.Block{Type: typeCertificate, Headers: map[string]string{"from": "somebody"}, Bytes: []byte(content)})
	return "a comment\n" + string(b)
}

// plain returns the text that a pod gets for certificates with these contents: PEM blocks without comments and headers.
func plain(contents ...string) string {
	var out strings.Builder
	for _, c := range contents {
		out.Write(pem.EncodeToMemory(&pem.Block{Type: typeCertificate, Bytes: []byte(c)}))
	}
	return out.String()
}

func trustBundle(name, signer, anchors string, labels map[string]string) *certificatesv1beta1.ClusterTrustBundle {
	return &certificatesv1beta1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       certificatesv1beta1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: anchors},
	}
}

func projecting(uid types.UID, sources ...v1.VolumeProjection) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p-" + string(uid), UID: uid},
		Spec: v1.PodSpec{ServiceAccountName: "robot", Volumes: []v1.Volume{{
			Name: "v", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: sources}},
		}}},
	}
}

func ptr[T any](v T) *T { return &v }

func TestAnchors(t *testing.T) {
	t.Parallel()
	all := map[string]bundle{}
	for _, b := range []*certificatesv1beta1.ClusterTrustBundle{
		trustBundle("one", "", block("b")+block("a")+block("b"), nil),
		trustBundle("s:live", "example.com/s", block("d")+block("c"), map[string]string{"live": "yes"}),
		trustBundle("s:old", "example.com/s", block("c"), nil),
		trustBundle("other:live", "example.com/other", block("e"), map[string]string{"live": "yes"}),
		trustBundle("mixed", "", "-----BEGIN PRIVATE KEY-----\naGVsbG8=\n-----END PRIVATE KEY-----\n"+block("f"), nil),
	} {
		all[b.Name] = bundleOf(b)
	}
	live := &metav1.LabelSelector{MatchLabels: map[string]string{"live": "yes"}}
	for name, tt := range map[string]struct {
		src  v1.ClusterTrustBundleProjection
		want string
		err  string
	}{
		"a name selects one bundle: sorted, each certificate once, no comments and headers": {v1.ClusterTrustBundleProjection{Name: ptr("one")}, plain("a", "b"), ""},
		"what is no certificate is left out":                                                {v1.ClusterTrustBundleProjection{Name: ptr("mixed")}, plain("f"), ""},
		"a name that does not exist":                                                        {v1.ClusterTrustBundleProjection{Name: ptr("none")}, "", `clustertrustbundle "none" not found`},
		"an optional name that does not exist":                                              {v1.ClusterTrustBundleProjection{Name: ptr("none"), Optional: ptr(true)}, "", ""},
		"an empty selector selects all bundles of the signer":                               {v1.ClusterTrustBundleProjection{SignerName: ptr("example.com/s"), LabelSelector: &metav1.LabelSelector{}}, plain("c", "d"), ""},
		"a selector selects the bundles with the labels":                                    {v1.ClusterTrustBundleProjection{SignerName: ptr("example.com/s"), LabelSelector: live}, plain("c", "d"), ""},
		"no selector selects nothing":                                                       {v1.ClusterTrustBundleProjection{SignerName: ptr("example.com/s")}, "", `no clustertrustbundle of signer "example.com/s"`},
		"no selector and optional":                                                          {v1.ClusterTrustBundleProjection{SignerName: ptr("example.com/s"), Optional: ptr(true)}, "", ""},
		"a signer without bundles":                                                          {v1.ClusterTrustBundleProjection{SignerName: ptr("example.com/x"), LabelSelector: live}, "", "no clustertrustbundle of signer"},
		"neither name nor signer":                                                           {v1.ClusterTrustBundleProjection{}, "", "neither name nor signerName"},
		"a selector that cannot be read":                                                    {v1.ClusterTrustBundleProjection{SignerName: ptr("x"), LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}}, "", "labelSelector"},
	} {
		got, err := anchors(all, &tt.src)
		if string(got) != tt.want || (err == nil) != (tt.err == "") || (err != nil && !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%s: got %q, %v; want %q, %q", name, got, err, tt.want, tt.err)
		}
	}
}

func TestBundlesAreWatchedWhileAPodNeedsThem(t *testing.T) {
	t.Parallel()
	byName := v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Name: ptr("one"), Path: "ca"}}
	bySigner := v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{SignerName: ptr("example.com/s"), LabelSelector: &metav1.LabelSelector{}, Path: "ca"}}
	run(t, watchOnly, func(t *testing.T, w *world) {
		if n := w.made("list clustertrustbundles"); n != 0 {
			t.Fatalf("%d lists before a pod needs a bundle", n)
		}
		w.Track(projecting("1", byName))
		w.Track(projecting("2", bySigner))
		if n := w.openWatches(); n != 1 {
			t.Fatalf("%d watches for two pods, want 1", n)
		}
		if got, err := w.TrustAnchors(t.Context(), "1", byName.ClusterTrustBundle); string(got) != plain("a") || err != nil {
			t.Fatalf("%q %v", got, err)
		}
		var lack *pod.Lacking
		if _, err := w.TrustAnchors(t.Context(), "2", bySigner.ClusterTrustBundle); !errors.As(err, &lack) || lack.What != pod.LackBundle {
			t.Fatalf("no bundle of the signer: %v", err)
		}
		bundles := w.client.CertificatesV1beta1().ClusterTrustBundles()
		if _, err := bundles.Create(t.Context(), trustBundle("s:new", "example.com/s", block("c"), nil), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if w.notifications("1") != 0 || w.notifications("2") != 1 {
			t.Errorf("notified %d and %d times, want only the pod of the signer", w.notifications("1"), w.notifications("2"))
		}
		if got, err := w.TrustAnchors(t.Context(), "2", bySigner.ClusterTrustBundle); string(got) != plain("c") || err != nil {
			t.Fatalf("%q %v", got, err)
		}
		if err := bundles.Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if w.notifications("1") != 1 {
			t.Errorf("%d notifications after the bundle was deleted", w.notifications("1"))
		}
		w.Forget("1")
		done := projecting("2", bySigner)
		done.Status.Phase = v1.PodSucceeded
		w.Track(done)
		if n := w.openWatches(); n != 0 {
			t.Errorf("%d watches after the last pod", n)
		}
		if _, err := w.TrustAnchors(t.Context(), "2", bySigner.ClusterTrustBundle); err == nil {
			t.Error("a pod that has ended got anchors")
		}
	}, trustBundle("one", "", block("a"), nil))
}

func TestBundlesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	byName := v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Name: ptr("one"), Path: "ca"}}
	run(t, watchOnly, func(t *testing.T, w *world) {
		w.setFail("list clustertrustbundles", errors.New("away"))
		w.Track(projecting("1", byName))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if _, err := w.TrustAnchors(ctx, "1", byName.ClusterTrustBundle); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("before an answer: %v", err)
		}
		if _, err := w.TrustAnchors(t.Context(), "1", byName.ClusterTrustBundle); err == nil || !strings.Contains(err.Error(), "away") {
			t.Fatalf("after several failures: %v", err)
		}
		w.setFail("list clustertrustbundles", nil)
		time.Sleep(time.Minute)
		if w.notifications("1") != 1 {
			t.Errorf("%d notifications when the server answers", w.notifications("1"))
		}
		if got, err := w.TrustAnchors(t.Context(), "1", byName.ClusterTrustBundle); string(got) != plain("a") || err != nil {
			t.Fatalf("%q %v", got, err)
		}
	}, trustBundle("one", "", block("a"), nil))
	off := New(Config{NoServices: true})
	if _, err := off.TrustAnchors(t.Context(), "1", byName.ClusterTrustBundle); pod.LackOf(err) != pod.LackSupport || !strings.Contains(err.Error(), "ClusterTrustBundleProjection") {
		t.Errorf("with the gate off: %v", err)
	}
}
