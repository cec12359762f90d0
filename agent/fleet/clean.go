package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
)

const (
	// deletions is how many objects are deleted at the same time.
	deletions = 16
	// cleanTimeout bounds the removal of a fleet or of nodes, and cleanEach is how much longer it may take for each object.
	cleanTimeout = 5 * time.Minute
	cleanEach    = 20 * time.Millisecond
)

// Removed says what Clean has removed.
type Removed struct {
	Nodes, Pods int
	// Unchecked names the kinds of objects that the user may not delete, so that objects of a fleet with certificates or storage may be left.
	Unchecked string
}

// Clean removes everything that a fleet left in a cluster: its Nodes, their leases, the pods on them, the pods that the fleet
// created, if its nodes had certificates, its bootstrap token, bindings and certificate requests, and with Config.Storage, its storage classes
// and CSI drivers, and the resource slices of the Nodes. name is the fleet's name; "": all
// fleets. The fleet must not run: see CheckEnded. After an error Clean continues with the next object; it returns all errors, joined.
func Clean(ctx context.Context, client *rest.Config, name string) (Removed, error) {
	api, err := newClient(client, nil)
	if err != nil {
		return Removed{}, err
	}
	done, err := clean(ctx, api, selectorOf(name))
	for _, k := range slices.Concat(accessKinds, storageKinds, sliceKinds) {
		switch kindErr := k.removeAll(ctx, api, selectorOf(name)); {
		case apierrors.IsForbidden(kindErr):
			if done.Unchecked != "" {
				done.Unchecked += ", "
			}
			done.Unchecked += k.name
		default:
			err = errors.Join(err, kindErr)
		}
	}
	return done, err
}

// CleanShards deletes the leases of a fleet that several processes shared; Clean removes the nodes. name is the fleet's name; "": all fleets. namespace
// is that of the leases; "": all namespaces, or kube-system if the user may not list leases in all. It returns an error, and deletes nothing, if a process
// of the fleet renewed its lease recently.
func CleanShards(ctx context.Context, client *rest.Config, namespace, name string) error {
	api, err := newClient(client, nil)
	if err != nil {
		return err
	}
	opts := metav1.ListOptions{LabelSelector: selectorOf(name) + "," + LabelLease}
	got, err := api.Leases(namespace).List(ctx, opts)
	if apierrors.IsForbidden(err) && namespace == "" {
		if got, err = api.Leases(metav1.NamespaceSystem).List(ctx, opts); apierrors.IsForbidden(err) { // a user who may not read them there has not shared a fleet there
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("list the leases of the fleet: %w", err)
	}
	for i := range got.Items {
		l := &got.Items[i]
		if holderOf(l) == "" || l.Spec.RenewTime == nil {
			continue
		}
		if age := time.Since(l.Spec.RenewTime.Time); age < shardDuration {
			return fmt.Errorf("the fleet %s runs: %s renewed the lease %s/%s %s ago: end its processes first, or wait %s if they were killed",
				l.Labels[LabelFleet], holderOf(l), l.Namespace, l.Name, age.Round(time.Second), shardDuration)
		}
	}
	var errs []error
	for i := range got.Items {
		l := &got.Items[i]
		if err := api.Leases(l.Namespace).Delete(ctx, l.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete the lease %s/%s: %w", l.Namespace, l.Name, err))
		}
	}
	return errors.Join(errs...)
}

func selectorOf(name string) string {
	if name == "" {
		return LabelFleet
	}
	return LabelFleet + "=" + name
}

// removal removes from a cluster the Nodes that a label selector matches, their leases, the pods on them, and all other pods that the selector
// matches.
type removal struct {
	api      *kubeclient.Client
	selector string
	// only, if it is not nil, has the names of the Nodes to remove: just these, with their leases and pods.
	only map[string]bool
	// bounded limits the time to cleanTimeout, and cleanEach for each object. Otherwise the removal takes as long as it takes.
	bounded bool

	mu          sync.Mutex
	until       time.Time // the end of the time, if it is bounded; it moves when objects are found
	done, found Removed
	failed      unremoved
}

// unremoved is the error of a removal that has left objects.
type unremoved struct {
	first []error // the first ones
	count int
}

// mostNamed is how many errors the error of a removal names.
const mostNamed = 3

// Error names the first errors, and says how many there are.
func (u *unremoved) Error() string {
	var texts []string
	for _, err := range u.first {
		texts = append(texts, err.Error())
	}
	text := strings.Join(texts, "; ")
	if u.count > len(u.first) {
		text += "; and so on"
	}
	return fmt.Sprintf("%d objects of the fleet could not be removed: %s", u.count, text)
}

// Unwrap returns the first errors.
func (u *unremoved) Unwrap() []error { return u.first }

// clean removes the Nodes that the selector matches, their leases, the pods on them, and all other pods that the selector matches. Its time has no limit.
func clean(ctx context.Context, api *kubeclient.Client, selector string) (Removed, error) {
	r := &removal{api: api, selector: selector}
	err := r.run(ctx)
	return r.done, err
}

// run removes what there is. After an error it continues with the next object. The error is an *unremoved, joined with those of lists.
func (r *removal) run(ctx context.Context) error {
	r.until = time.Now().Add(cleanTimeout)
	names, nodes, err := r.nodes(ctx)
	if err != nil {
		return err
	}
	r.find(Removed{Nodes: len(names)}, 2*len(names)) // a Node and its lease
	r.each(ctx, func(ctx context.Context) {
		limited(names, deletions, func(name string) {
			r.note(Removed{Nodes: 1}, "node "+name, r.api.Nodes().Delete(ctx, name, metav1.DeleteOptions{}))
			r.note(Removed{}, "lease of node "+name, r.api.Leases(v1.NamespaceNodeLease).Delete(ctx, name, metav1.DeleteOptions{}))
		})
	})
	var pods []podName
	r.each(ctx, func(ctx context.Context) { pods, err = podsOf(ctx, r.api, r.selector, nodes, r.only == nil) })
	r.find(Removed{Pods: len(pods)}, len(pods))
	now := int64(0) // the grace period in seconds: nothing runs on these nodes any more, so no pod needs time to end
	r.each(ctx, func(ctx context.Context) {
		limited(pods, deletions, func(p podName) {
			opts := metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(p.uid)}
			r.note(Removed{Pods: 1}, "pod "+p.namespace+"/"+p.name, r.api.Pods(p.namespace).Delete(ctx, p.name, opts))
		})
	})
	if r.failed.count > 0 {
		return errors.Join(err, &r.failed)
	}
	return err
}

// nodes returns the Nodes to remove, as a list and as a set.
func (r *removal) nodes(ctx context.Context) (names []string, nodes map[string]bool, err error) {
	nodes = map[string]bool{}
	r.each(ctx, func(ctx context.Context) {
		err = eachPage(func(opts metav1.ListOptions) (string, error) {
			opts.LabelSelector = r.selector
			list, err := r.api.Nodes().List(ctx, opts)
			if err != nil {
				return "", fmt.Errorf("list the nodes of the fleet: %w", err)
			}
			for i := range list.Items {
				if n := list.Items[i].Name; r.only == nil || r.only[n] {
					names, nodes[n] = append(names, n), true
				}
			}
			return list.Continue, nil
		})
	})
	return names, nodes, err
}

// each calls part, one part of the removal, with a context that ends with the time of the removal.
func (r *removal) each(ctx context.Context, part func(context.Context)) {
	if r.bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, r.until)
		defer cancel()
	}
	part(ctx)
}

// find stores what there is to remove, in so many objects, and gives the removal the time for them.
func (r *removal) find(what Removed, objects int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found.Nodes, r.found.Pods = r.found.Nodes+what.Nodes, r.found.Pods+what.Pods
	r.until = r.until.Add(time.Duration(objects) * cleanEach)
}

// note stores the result of the removal of an object. An object that does not exist any more is not counted as removed.
func (r *removal) note(what Removed, object string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		r.done.Nodes, r.done.Pods = r.done.Nodes+what.Nodes, r.done.Pods+what.Pods
	case !apierrors.IsNotFound(err):
		if r.failed.count++; r.failed.count <= mostNamed {
			r.failed.first = append(r.failed.first, fmt.Errorf("%s: %w", object, err))
		}
	}
}

// progress returns what is removed so far, and how much there is in all.
func (r *removal) progress() (done, found Removed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.done, r.found
}

// clear removes the fleet from the cluster at the end of Run. Its error says what is left, and how to remove it.
func (f *Fleet) clear(ctx context.Context) error {
	r := &removal{api: f.api, selector: f.selector(), bounded: true}
	f.mu.Lock()
	f.removal = r
	f.mu.Unlock()
	err := r.run(ctx)
	final, cancel := context.WithTimeout(ctx, cleanTimeout)
	defer cancel()
	err = errors.Join(err, f.closeStorage(final))
	f.cfg.Log.Info("the fleet is removed from the cluster", "nodes", r.done.Nodes, "pods", r.done.Pods)
	if err != nil {
		return fmt.Errorf("%w\nremove what is left of the fleet with wherry fleet clean --name %s", err, f.cfg.Name)
	}
	return nil
}

// Removal says how much Run has removed from the cluster at its end, and how much it has found to remove. Pods are found after the Nodes are removed. Both are
// zero before the end, and if the fleet leaves its Nodes in the cluster.
func (f *Fleet) Removal() (done, found Removed) {
	f.mu.Lock()
	r := f.removal
	f.mu.Unlock()
	if r == nil {
		return done, found
	}
	return r.progress()
}

// podName identifies a pod.
type podName struct{ namespace, name, uid string }

// podsOf returns the pods that are bound to the nodes. If created is true, it also returns all other pods that the selector matches:
// these are pods that the fleet created.
func podsOf(ctx context.Context, api *kubeclient.Client, selector string, nodes map[string]bool, created bool) (pods []podName, err error) {
	take := func(which metav1.ListOptions, belongs func(*v1.Pod) bool) error {
		return eachPage(func(opts metav1.ListOptions) (string, error) {
			opts.LabelSelector, opts.FieldSelector = which.LabelSelector, which.FieldSelector
			list, err := api.Pods(metav1.NamespaceAll).List(ctx, opts)
			if err != nil {
				return "", fmt.Errorf("list the pods of the fleet: %w", err)
			}
			for i := range list.Items {
				if p := &list.Items[i]; belongs(p) {
					pods = append(pods, podName{p.Namespace, p.Name, string(p.UID)})
				}
			}
			return list.Continue, nil
		})
	}
	if len(nodes) > 0 {
		err = take(metav1.ListOptions{FieldSelector: bound}, func(p *v1.Pod) bool { return nodes[p.Spec.NodeName] })
	}
	if created {
		err = errors.Join(err, take(metav1.ListOptions{LabelSelector: selector}, func(p *v1.Pod) bool { return !nodes[p.Spec.NodeName] }))
	}
	return pods, err
}

// maxPages is the maximum number of pages that eachPage reads of one list.
const maxPages = 2000

// eachPage calls list once for each page of a list. list returns the continue token of the next page, or "" after the last.
func eachPage(list func(metav1.ListOptions) (next string, err error)) error {
	opts := metav1.ListOptions{Limit: kubeclient.PageSize}
	for range maxPages {
		next, err := list(opts)
		if err != nil || next == "" {
			return err
		}
		opts.Continue = next
	}
	return fmt.Errorf("a list has more than %d pages", maxPages)
}
