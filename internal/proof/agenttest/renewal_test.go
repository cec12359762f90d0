package agenttest

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/sim/simcri"
)

// shows returns a pod with one volume.
func shows(name string, source v1.VolumeSource) *v1.Pod {
	p := Pod(name)
	p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: "shown", VolumeSource: source})
	p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: "shown", MountPath: "/shown"})
	return p
}

// A container that has ended starts again while the content of its pod's volumes cannot be renewed: an object was deleted, or a token is due and
// the API server is away.
func TestContainersRestartWhileVolumesCannotBeRenewed(t *testing.T) {
	t.Parallel()
	Run(t, Config{Runtime: simcri.Config{Latency: latencies()}}, func(w *World) {
		secrets := w.Admin.CoreV1().Secrets(Namespace)
		key := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "key"}, Data: map[string][]byte{"k": []byte("hidden")}}
		if _, err := secrets.Create(w.Context(), key, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.Create(shows("secret", v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "key"}}))
		w.Create(shows("token", v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(600))}}}}}))
		w.WaitReady("secret", "token")
		restarts := func(name string) {
			t.Helper()
			before := w.running(name)
			w.Kill(name, "main", 1, "")
			w.Await("the container of "+name+" runs again", time.Minute, func() bool { return w.running(name) != "" && w.running(name) != before })
		}
		if err := secrets.Delete(w.Context(), "key", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.awaitFailedMount("secret", "key")
		restarts("secret")
		key.ResourceVersion = ""
		if _, err := secrets.Create(w.Context(), key, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.SetOutage(true)
		time.Sleep(20 * time.Minute) // the token has expired
		restarts("token")
		w.SetOutage(false)
		w.WaitConverged(2 * time.Minute)
	})
}
