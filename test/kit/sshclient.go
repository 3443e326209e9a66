// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// An SSHClient is a user of OpenSSH's ssh: a key, a list of known hosts and a
// configuration. ssh(1) looks for these files in the home directory of the account and
// ignores HOME. Therefore the first ssh in PATH is a script that passes their paths.
type SSHClient struct {
	Dir string // directory of the files: id, id.pub, known_hosts, config, bin/ssh
}

// NewSSHClient makes a client with a new key and no known hosts.
func NewSSHClient(t testing.TB) *SSHClient {
	t.Helper()
	c := &SSHClient{Dir: Dir(t)}
	SSHKey(t, c.path("id"))
	config := fmt.Sprintf("Host *\n\tIdentityFile %s\n\tIdentitiesOnly yes\n\tUserKnownHostsFile %s\n"+
		"\tGlobalKnownHostsFile none\n\tStrictHostKeyChecking yes\n\tUpdateHostKeys no\n", c.path("id"), c.path("known_hosts"))
	files := map[string]string{
		"config":      config,
		"known_hosts": "",
		"bin/ssh":     "#!/bin/sh\nexec /usr/bin/ssh -F " + c.path("config") + " \"$@\"\n",
	}
	for name, text := range files {
		WriteFile(t, c.path(name), text)
	}
	if err := os.Chmod(c.path("bin/ssh"), 0o755); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *SSHClient) path(name string) string { return filepath.Join(c.Dir, name) }

// Env is the environment of a program that calls ssh as this client.
func (c *SSHClient) Env() []string {
	return append(os.Environ(), "PATH="+c.path("bin")+":"+os.Getenv("PATH"))
}

// Know adds a known host: its address, port and public key file.
func (c *SSHClient) Know(t testing.TB, host string, port int, pub string) {
	t.Helper()
	key, err := os.ReadFile(pub)
	if err != nil {
		t.Fatal(err)
	}
	if port != 22 {
		host = fmt.Sprintf("[%s]:%d", host, port)
	}
	f, err := os.OpenFile(c.path("known_hosts"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := fmt.Fprintf(f, "%s %s\n", host, strings.TrimSpace(string(key))); err != nil {
		t.Fatal(err)
	}
}

// Public returns the client's public key, a line of authorized_keys.
func (c *SSHClient) Public(t testing.TB) string {
	t.Helper()
	key, err := os.ReadFile(c.path("id.pub"))
	if err != nil {
		t.Fatal(err)
	}
	return string(key)
}

// Command is an ssh command of the client, in namespace n.
func (c *SSHClient) Command(n *Netns, args ...string) *exec.Cmd {
	cmd := n.Command(append([]string{c.path("bin/ssh"), "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"}, args...)...)
	cmd.Env = c.Env()
	return cmd
}

// SSHKey makes a key pair, path and path.pub.
func SSHKey(t testing.TB, path string) {
	t.Helper()
	Host.Run(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", path)
}
