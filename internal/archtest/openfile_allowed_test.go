package archtest

// Why no container, tenant or volume can decide what is at a path.
const (
	kernelText  = "a file of /proc, /sys or a cgroup: the kernel makes the names and the text"
	adminFile   = "a file that the node's administrator keeps, at a path of the configuration or of the operating system; it may be a link"
	ownFile     = "in a directory that only the agent writes to, below its root directory or its configured directories"
	userCommand = "a command that somebody runs by hand, with the rights of that person, on a file named to it"
	manifestDir = "the static pods' path belongs to the administrator: who can write there can run any pod. Its files may be links (those of a " +
		"mounted ConfigMap are); what is not regular is refused and no more than 10 MiB are read"
	readOnlyVolume = "a volume of files that the agent writes: containers have it mounted read-only"
)

// openAllowed are the exceptions, each by file, function and call.
var openAllowed = map[opening]string{
	{"agent/facts.go:Agent.maskedPaths", "path/filepath.Glob"}:                  kernelText,
	{"agent/ground.go:readFile", "os.ReadFile"}:                                 adminFile,
	{"internal/nodefacts/resolv.go:Resolver.Read", "os.ReadFile"}:               adminFile,
	{"cmd/wherry/csr.go:csrFlags.given", "os.ReadFile"}:                         userCommand,
	{"internal/podctl/manifests.go:manifestFiles", "os.ReadDir"}:                userCommand,
	{"internal/podctl/manifests.go:manifests.read", "os.Open"}:                  userCommand,
	{"cmd/wherry/man.go:newMan", "os.WriteFile"}:                                userCommand,
	{"agent/open.go:Agent.limitProcess", "os.WriteFile"}:                        kernelText,
	{"agent/open.go:setKernelAt", "os.ReadFile"}:                                kernelText,
	{"agent/open.go:setKernelAt", "os.WriteFile"}:                               kernelText,
	{"internal/launch/own.go:Own.Forget", "os.ReadDir"}:                         ownFile,
	{"internal/launch/own.go:Own.Forget", "path/filepath.Glob"}:                 kernelText,
	{"internal/launch/own.go:Own.log", "os.OpenFile"}:                           ownFile,
	{"internal/launch/own.go:resolvConf", "os.ReadFile"}:                        adminFile,
	{"internal/socket/socket.go:lockFile", "os.OpenFile"}:                       ownFile,
	{"cmd/wherry/tools.go:writeBootstrap", "os.ReadFile"}:                       userCommand,
	{"internal/cgroup/hierarchy.go:discover", "os.ReadFile"}:                    kernelText,
	{"internal/cgroup/hierarchy.go:hierarchy.childQuota", "os.ReadDir"}:         kernelText,
	{"internal/cgroup/hierarchy.go:hierarchy.tasks", "path/filepath.WalkDir"}:   kernelText,
	{"internal/cgroup/own.go:Own", "os.ReadFile"}:                               kernelText,
	{"internal/cgroup/pods.go:Cgroups.PodCgroups", "os.ReadDir"}:                kernelText,
	{"internal/cgroup/hierarchy.go:readNumber", "os.ReadFile"}:                  kernelText,
	{"internal/checkpoint/checkpoint.go:Dir.Load", "os.ReadFile"}:               ownFile,
	{"internal/config/file.go:readDropIns", "path/filepath.WalkDir"}:            adminFile,
	{"internal/config/file.go:readFile", "os.ReadFile"}:                         adminFile,
	{"internal/config/host.go:ReadHostFacts", "os.ReadFile"}:                    kernelText,
	{"internal/config/wherry.go:loadWherry", "os.ReadFile"}:                     adminFile,
	{"internal/podctl/find.go:findSocket", "path/filepath.Glob"}:                "names in /run/wherry, which only root enters",
	{"internal/hostfs/machine.go:Machine.Memory", "os.ReadFile"}:                kernelText,
	{"internal/hostfs/machine.go:Machine.Tasks", "os.ReadFile"}:                 kernelText,
	{"internal/hostfs/machine.go:Machine.first", "os.ReadFile"}:                 kernelText,
	{"internal/hostfs/machine.go:Machine.hugePages", "os.ReadDir"}:              kernelText,
	{"internal/hostfs/open_dir.go:rootOf", "os.OpenRoot"}:                       "opens again, by its descriptor, a directory that is known to be one",
	{"internal/hostfs/open_untrusted.go:openToOverwrite", "os.OpenFile"}:        "makes a new file: O_EXCL opens nothing that exists",
	{"internal/hostfs/descent.go:mountID", "os.ReadFile"}:                       kernelText,
	{"internal/hostfs/mount.go:swaps", "os.ReadFile"}:                           kernelText,
	{"internal/identity/byhand.go:HandRequest.kubeconfig", "os.ReadFile"}:       userCommand,
	{"internal/identity/key.go:keptKey", "os.ReadFile"}:                         ownFile,
	{"internal/identity/store.go:loadPair", "os.ReadFile"}:                      ownFile,
	{"internal/image/credentials.go:credentials.lookup", "os.ReadFile"}:         adminFile,
	{"internal/nodefacts/address.go:defaultAddress", "os.Open"}:                 kernelText,
	{"internal/server/debug.go:Server.serveSystemLog", "net/http.FileServerFS"}: "serves a hostfs.UntrustedFS",
	{"internal/server/tls.go:ClientCAs.read", "os.ReadFile"}:                    adminFile,
	{"internal/source/dir.go:scan.list", "os.ReadDir"}:                          manifestDir,
	{"internal/source/dir.go:scan.read", "os.Open"}:                             manifestDir,
	{"internal/source/push_store.go:store.load", "os.ReadDir"}:                  ownFile,
	{"internal/source/push_store.go:store.load", "os.ReadFile"}:                 ownFile,
	{"internal/stats/groups.go:tree.containers", "os.ReadDir"}:                  kernelText,
	{"internal/stats/groups.go:tree.walk", "os.ReadDir"}:                        kernelText,
	{"internal/stats/network.go:defaultRoute", "os.ReadFile"}:                   kernelText,
	{"internal/stats/network.go:readNetwork", "os.ReadFile"}:                    kernelText,
	{"internal/stats/processes.go:reader.descriptors", "os.Open"}:               kernelText,
	{"internal/stats/read.go:open", "golang.org/x/sys/unix.Open"}:               kernelText,
	{"internal/stats/read.go:reader.rootUsage", "os.ReadFile"}:                  kernelText,
	{"internal/stats/read.go:tree.pid", "os.ReadFile"}:                          kernelText,
	{"internal/userns/userns.go:Ranges.find", "os.ReadDir"}:                     ownFile,
	{"internal/userns/userns.go:read", "os.ReadFile"}:                           ownFile,
	{"internal/volume/atomic.go:writer.clear", "os.ReadDir"}:                    readOnlyVolume,
	{"internal/volume/atomic.go:writer.fill", "os.WriteFile"}:                   readOnlyVolume,
	{"internal/volume/atomic.go:writer.shows", "path/filepath.WalkDir"}:         readOnlyVolume,
	{"internal/volume/atomic.go:writer.sweep", "os.ReadDir"}:                    readOnlyVolume,
	{"internal/volume/filesusage.go:readDir", "os.ReadDir"}:                     "lists directories that only the agent writes to: containers have single files of them mounted",
	{"internal/volume/hostpath.go:makeFile", "os.OpenFile"}:                     "makes a new file for FileOrCreate: O_EXCL opens nothing that exists; the path is one of the node, which the pod's author may mount",
	{"internal/volume/podfiles.go:Volumes.messageFile", "os.OpenFile"}:          "makes a new file: O_EXCL opens nothing that exists; containers have the file mounted, not its directory",
	{"internal/volume/podfiles.go:pruneMessages", "os.ReadDir"}:                 "lists a directory that only the agent writes to: containers have single files of it mounted",
	{"internal/volume/subpath.go:makeTarget", "os.OpenFile"}:                    "makes a new file in a directory that only the agent writes to: O_EXCL opens nothing that exists",
	{"internal/volume/teardown.go:Volumes.Orphans", "os.ReadDir"}:               ownFile,
	{"internal/pullrecord/file.go:names", "os.Open"}:                            ownFile,
}
