// Package volume makes the volumes of pods (directories, tmpfs, and files from the API, which change with their objects) and the mounts
// of containers.
//
// A pod that ends only unpublishes its CSI volumes. Those that no pod uses any more are unstaged afterwards, by the work that Begin begins: so a
// driver that cannot unstage a volume keeps no pod from ending.
//
// Contract: SetUp, TearDown and Remove may run for many pods at once, but only one of them at a time for each pod. Mounts may run
// for several containers of one pod at once, and while SetUp refreshes the pod. All are idempotent and may be repeated after any
// failure or crash, because they find the state on the disk and in the mount table and keep none in memory. An error is an *Error, which
// names the volume and says what to do. No goroutine outlives a call, except those of Begin, and those that wait for a disk that does not answer.
//
// The layout is that of upstream's kubelet, because a node may change from one agent to the other:
//
//	<root>/pods/<uid>/volumes/kubernetes.io~<kind>/<name>    a volume; ..data leads to files from the API
//	<root>/pods/<uid>/volumes/kubernetes.io~local-volume/<persistent volume>   a local volume, bind-mounted
//	<root>/pods/<uid>/volumes/kubernetes.io~nfs/<name>       an NFS volume, mounted for this pod
//	<root>/pods/<uid>/volumes/kubernetes.io~iscsi/<name>     an iSCSI volume, bind-mounted; kubernetes.io~fc: one of Fibre Channel
//	<root>/plugins/kubernetes.io/iscsi/<disk>                the mounted disk, which the pods of the node share; also fc/<disk>
//	<root>/pods/<uid>/volumes/kubernetes.io~csi/<persistent volume>/mount      a CSI volume; beside it vol_data.json
//	<root>/plugins/kubernetes.io/csi/<driver>/<hash>/globalmount     a staged CSI volume; beside it vol_data.json
//	<root>/pods/<uid>/claims/<volume>                        the record of a volume with a claim: its persistent volume
//	<root>/pods/<uid>/volume-subpaths/<volume>/<container>/<index>   bind mounts of subPaths; with a claim, <volume> is the persistent volume
//	<root>/pods/<uid>/containers/<container>/<id>            termination messages
//	<root>/pods/<uid>/etc-hosts                              the pod's hosts file
//
// The directory claims, and the key wherryStaged in the vol_data.json of a staged volume, are not upstream's. With the records in claims,
// the agent can restart a container and take down a volume while the API server does not answer. Upstream's kubelet ignores both, and
// deletes them with the pod or the volume. A file of our own beside a staged volume would keep upstream's kubelet from deleting the
// volume's directory.
//
// Invariants:
//  1. A reader of a files volume sees either all old or all new content: one rename swaps ..data. Equal content is not
//     written again.
//  2. No symbolic link that a container plants makes the agent open, create, mount or delete anything outside of the
//     volume.
//  3. Nothing is deleted through a mount: TearDown unmounts first, and the deletion enters no mount.
//  4. Only one goroutine at a time works on a persistent volume, whichever pods use it. Work on other volumes does not wait for it.
//  5. Two pods of a ReadWriteOncePod claim never have it at the same time.
//  6. The agent never changes an existing emptyDir: its content and modes belong to the pod.
package volume
