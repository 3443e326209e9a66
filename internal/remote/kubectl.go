// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// KindNode is the kind of a node of Kubernetes. Only `lklctl kubectl` makes such targets.
const KindNode = "node"

// agentLabel is the label of the DaemonSet's pods.
const agentLabel = "app.kubernetes.io/name=lklrun"

// kubectlLimit is the timeout of one request. kubectl may first ask for a login.
const kubectlLimit = time.Minute

// Cluster is a cluster of Kubernetes, with a DaemonSet whose pods contain lklrun.
type Cluster struct {
	Flags     []string // flags of kubectl that select the cluster and the user
	Namespace string   // namespace of the DaemonSet
}

// KubePod is a pod of a cluster.
type KubePod struct {
	Namespace, Name string
	Node            string // empty: not on a node yet
	Phase           string // Pending, Running, Succeeded, Failed or Unknown
	Ready           bool
}

// describe returns the remedy for a pod that does not run.
func (p *KubePod) describe() string {
	return fmt.Sprintf("see kubectl describe pod --namespace %s %s", p.Namespace, p.Name)
}

// podObject is the part of a pod's JSON that lklctl uses.
type podObject struct {
	Metadata struct {
		Namespace, Name   string
		DeletionTimestamp *string
	}
	Spec   struct{ NodeName string }
	Status struct {
		Phase      string
		Conditions []struct{ Type, Status string }
	}
}

func (o *podObject) pod() KubePod {
	p := KubePod{Namespace: o.Metadata.Namespace, Name: o.Metadata.Name, Node: o.Spec.NodeName, Phase: o.Status.Phase}
	for _, c := range o.Status.Conditions {
		if c.Type == "Ready" && c.Status == "True" {
			p.Ready = o.Metadata.DeletionTimestamp == nil
		}
	}
	return p
}

// errNotFound means that the API server knows no such object.
var errNotFound = errors.New("not found")

// get runs kubectl get, and parses its output. kubectl may ask for a login at the
// terminal.
func (c *Cluster) get(ctx context.Context, result any, args ...string) error {
	program, err := exec.LookPath("kubectl")
	if err != nil {
		return userError("kubectl", "the program is not installed on this machine; install kubectl")
	}
	limited, cancel := context.WithTimeout(ctx, kubectlLimit)
	defer cancel()
	var out, said Head
	out.Most = 64 << 20
	cmd := exec.CommandContext(limited, program, slices.Concat(c.Flags, []string{"get", "--output=json"}, args)...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &said, time.Second
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case limited.Err() != nil:
		return broken("kubectl", "the cluster did not answer within %v", kubectlLimit)
	case err != nil && strings.Contains(said.String(), "(NotFound)"):
		return errNotFound
	case err != nil:
		return broken("kubectl", "%s", cmp.Or(strings.TrimPrefix(lastLine(said.String()), "error: "), err.Error()))
	}
	if err := json.Unmarshal(out.Bytes(), result); err != nil {
		return broken("kubectl", "reading its output: %w", err)
	}
	return nil
}

// ErrNoPod means that a pod does not exist, or is not on a node.
var ErrNoPod = errors.New("no such pod")

type noPodError struct{ error }

func (noPodError) Is(target error) bool { return target == ErrNoPod }

// Pod finds a pod that is on a node. An empty namespace is the one that kubectl uses by
// default.
func (c *Cluster) Pod(ctx context.Context, namespace, name string) (*KubePod, error) {
	var where, among []string
	if namespace != "" {
		where, among = []string{"--namespace=" + namespace}, []string{" --namespace ", namespace}
	}
	var o podObject
	err := c.get(ctx, &o, append(where, "--", "pod", name)...)
	if errors.Is(err, errNotFound) {
		remedy := "kubectl get pods" + strings.Join(among, "") + " lists the pods"
		if namespace == "" {
			remedy += " of this namespace; -n NAMESPACE selects another one"
		}
		return nil, noPodError{fmt.Errorf("pod %s: not found; %s", name, remedy)}
	}
	if err != nil {
		return nil, err
	}
	p := o.pod()
	if p.Node == "" {
		return nil, noPodError{fmt.Errorf("pod %s/%s is not on a node yet (%s); %s", p.Namespace, p.Name, p.Phase, p.describe())}
	}
	return &p, nil
}

// Agents returns the pods of the DaemonSet, by their nodes: that of one node, or all if
// node is empty.
func (c *Cluster) Agents(ctx context.Context, node string) (map[string]KubePod, error) {
	args := []string{"--namespace=" + c.Namespace, "--selector=" + agentLabel}
	if node != "" {
		args = append(args, "--field-selector=spec.nodeName="+node)
	}
	var list struct{ Items []podObject }
	if err := c.get(ctx, &list, append(args, "--", "pods")...); err != nil && !errors.Is(err, errNotFound) {
		return nil, err
	}
	all := map[string]KubePod{}
	for i := range list.Items {
		p := list.Items[i].pod()
		if p.Node != "" && !all[p.Node].Ready { // an update may leave two pods for a moment
			all[p.Node] = p
		}
	}
	return all, nil
}

// Agent returns the pod of the DaemonSet on a node.
func (c *Cluster) Agent(ctx context.Context, node string) (KubePod, error) {
	all, err := c.Agents(ctx, node)
	if err != nil {
		return KubePod{}, err
	}
	p, found := all[node]
	if !found {
		return p, userError(Target{KindNode, node}.String(), "namespace %s has no pod with the label %s there; install the DaemonSet of lklrun, or use --agent-namespace", c.Namespace, agentLabel)
	}
	return p, nil
}

// Ready returns the node of an agent as a device.
func (c *Cluster) Ready(agent KubePod) (*Ready, error) {
	d := &nodeDevice{cluster: c, agent: agent}
	if !agent.Ready {
		return nil, userError(d.Name(), "pod %s/%s, which contains lklrun, is not ready (%s); %s", agent.Namespace, agent.Name, agent.Phase, agent.describe())
	}
	return &Ready{Device: d}, nil
}

// nodeDevice is a node of a cluster: kubectl executes lklrun in the pod of the DaemonSet.
// The image of this pod has no shell.
type nodeDevice struct {
	cluster *Cluster
	agent   KubePod
}

func (d *nodeDevice) Name() string { return Target{KindNode, d.agent.Node}.String() }

// program returns a process that runs the node's lklrun.
func (d *nodeDevice) program(ctx context.Context, stdin bool, args []string) *exec.Cmd {
	words := append(slices.Clone(d.cluster.Flags), "exec", "--quiet", "--namespace="+d.agent.Namespace)
	if stdin {
		words = append(words, "--stdin")
	}
	words = append(words, d.agent.Name, "--", "lklrun")
	if len(args) > 0 && args[0] == "device" {
		args = append([]string{"device", "--node"}, args[1:]...)
	}
	cmd := exec.CommandContext(ctx, "kubectl", append(words, args...)...)
	// As for ssh, Ctrl-C must not end kubectl.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 2 * time.Second
	return cmd
}

// RunProgram implements programs.
func (d *nodeDevice) RunProgram(ctx context.Context, c Command, args ...string) (int, error) {
	cmd := d.program(ctx, c.Stdin != nil, args)
	said := &kubectlErrors{to: c.Stderr}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, c.Stdout, said
	return d.ended(ctx, cmd.Run(), said)
}

// StartProgram implements programs.
func (d *nodeDevice) StartProgram(ctx context.Context, stderr io.Writer, args ...string) (Stream, error) {
	said := &kubectlErrors{to: stderr}
	return startStream(d.Name(), d.program(ctx, true, args), said, func(err error) (int, error) { return d.ended(ctx, err, said) })
}

// ended distinguishes the end of the program from a failure of kubectl, which has status
// 1, too.
func (d *nodeDevice) ended(ctx context.Context, err error, said *kubectlErrors) (int, error) {
	reported, last := said.end()
	var ended *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case errors.As(err, &ended) && ended.ExitCode() >= 0 && reported:
		return ended.ExitCode(), nil
	case strings.Contains(last, "executable file"):
		return 0, userError(d.Name(), "pod %s/%s contains no program lklrun; use the image of lklrun", d.agent.Namespace, d.agent.Name)
	}
	return 0, broken(d.Name(), "the connection was lost%s", after(": ", strings.TrimPrefix(last, "error: ")))
}

var errNoShell = errors.New("its pod has no shell")

// Run is for shell commands.
func (d *nodeDevice) Run(context.Context, Command) (int, error) {
	return 0, broken(d.Name(), "%w", errNoShell)
}

// Start is for shell commands.
func (d *nodeDevice) Start(context.Context, string, io.Writer) (Stream, error) {
	return nil, broken(d.Name(), "%w", errNoShell)
}

// Push is for bundles, which a node does not need.
func (d *nodeDevice) Push(context.Context, []File, string, func(int64)) error {
	return broken(d.Name(), "%w", errNoShell)
}

// Close does nothing: each command has a connection of its own.
func (d *nodeDevice) Close() error { return nil }

// kubectlErrors passes standard error on by lines. It omits the line with which kubectl
// reports that the command, and not kubectl, has failed.
type kubectlErrors struct {
	to io.Writer // may be nil

	mu       sync.Mutex
	line     []byte // the beginning of a line
	last     string
	reported bool
}

func (k *kubectlErrors) Write(p []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.line = append(k.line, p...)
	for {
		n := bytes.IndexByte(k.line, '\n') + 1
		if n == 0 && len(k.line) > headMost {
			n = len(k.line)
		}
		if n == 0 {
			return len(p), nil
		}
		k.pass(k.line[:n])
		k.line = k.line[n:]
	}
}

func (k *kubectlErrors) pass(line []byte) {
	if bytes.HasPrefix(line, []byte("command terminated with exit code ")) {
		k.reported = true
		return
	}
	k.reported = false // only the last line counts
	if text := strings.TrimSpace(string(line)); text != "" {
		k.last = text
	}
	if k.to != nil {
		_, _ = k.to.Write(line) // to memory
	}
}

// end passes the rest on. It returns whether kubectl has reported the exit status of the
// command, and the last line of other text.
func (k *kubectlErrors) end() (reported bool, last string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.line) > 0 {
		k.pass(k.line)
		k.line = nil
	}
	return k.reported, k.last
}
