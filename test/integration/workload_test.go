package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const deploymentManifest = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 5
      nodeSelector: {kubernetes.io/hostname: main}
      containers:
      - name: web
        image: registry.k8s.io/wherry/web:1
        ports: [{name: http, containerPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: http}]}
`

// A Deployment is applied, serves requests, is scaled, updated to another image and deleted.
func TestDeployment(t *testing.T) {
	s := newSpace(t)
	s.apply(deploymentManifest)
	s.kubectl("rollout", "status", "deployment/web", "--timeout=180s")
	pods := s.withApp("web")
	if len(pods) != 2 {
		t.Fatalf("%d pods, want 2", len(pods))
	}
	for i := range pods {
		answer := s.fetch("http://" + pods[i].Status.PodIP + ":8080/")
		s.contains("answer of "+pods[i].Name, answer, pods[i].Name)
	}
	s.eventually("endpoints", func() error {
		return s.endpoints("web", 2)
	})

	s.kubectl("scale", "deployment/web", "--replicas=3")
	s.kubectl("rollout", "status", "deployment/web", "--timeout=180s")
	if n := len(s.withApp("web")); n != 3 {
		t.Errorf("%d pods after scale, want 3", n)
	}
	s.kubectl("scale", "deployment/web", "--replicas=1")
	s.eventually("scale down", func() error {
		if n := len(s.withApp("web")); n != 1 {
			return fmt.Errorf("%d pods", n)
		}
		return nil
	})

	s.kubectl("set", "image", "deployment/web", "web=registry.k8s.io/wherry/web:2")
	s.kubectl("rollout", "status", "deployment/web", "--timeout=180s")
	s.eventually("the old pod to go", func() error {
		pods := s.withApp("web")
		if len(pods) != 1 || pods[0].Spec.Containers[0].Image != "registry.k8s.io/wherry/web:2" {
			return fmt.Errorf("pods %v", podNames(pods))
		}
		return nil
	})

	s.kubectl("delete", "deployment/web", "--cascade=foreground", "--timeout=180s")
	if pods := s.withApp("web"); len(pods) > 0 {
		t.Errorf("pods are left: %v", podNames(pods))
	}
}

// withApp returns the pods with this value of the label app.
func (s *space) withApp(app string) []v1.Pod {
	s.Helper()
	list, err := s.client().CoreV1().Pods(s.name).List(context.Background(), metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		s.Fatal(err)
	}
	return list.Items
}

// endpoints returns an error unless the Service has this number of ready endpoints.
func (s *space) endpoints(service string, want int) error {
	slices, err := s.client().DiscoveryV1().EndpointSlices(s.name).List(context.Background(), metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=" + service})
	if err != nil {
		return err
	}
	var ready []string
	for _, slice := range slices.Items {
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready != nil && *e.Conditions.Ready {
				ready = append(ready, strings.Join(e.Addresses, ","))
			}
		}
	}
	if len(ready) != want {
		return fmt.Errorf("ready endpoints %v, want %d", ready, want)
	}
	return nil
}
