// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// repository creates a bare git repository with some history in dir/r.git.
func repository(t *testing.T, dir string) {
	t.Helper()
	kit.Random(t, dir+"/random", 3<<20)
	kit.OK(t, kit.Limit, shell(`cd %s && export HOME=$PWD GIT_CONFIG_NOSYSTEM=1
		git config --global safe.directory '*' && git config --global user.name t && git config --global user.email t@example.com
		git init -q w && cd w && for i in $(seq 20); do mkdir $i && head -c ${i}0000 ../random >$i/f && git add . && git commit -q -m $i; done
		git config --global http.receivepack true && git config --global http.postBuffer 100M && cd .. && git clone -q --bare w r.git && rm random`, dir))
}

// shell is a command line for sh.
func shell(format string, args ...any) *exec.Cmd {
	return exec.Command("sh", "-c", fmt.Sprintf(format, args...))
}

// gitClient clones from url, and also pushes if the server allows it.
func gitClient(c *client, url string) {
	c.sh(`export HOME=%s; git clone -q %s %s/clone && git -C %[3]s/clone fsck --full`, c.dir, url, c.tmp)
	want := kit.OK(c, kit.Limit, shell(`HOME=%s git -C %[1]s/r.git rev-parse HEAD`, c.dir))
	if got := kit.OK(c, kit.Limit, shell(`HOME=%s git -C %s/clone rev-parse HEAD`, c.dir, c.tmp)); got != want {
		c.Errorf("cloned %s, want %s", got, want)
	}
	branch := strings.ReplaceAll(filepath.Base(c.tmp), "-", "")
	kit.Random(c, c.tmp+"/clone/pushed", 3<<20)
	c.sh(`export HOME=%s; cd %s/clone && git add . && git commit -q -m pushed && git push -qf origin HEAD:refs/heads/%s`, c.dir, c.tmp, branch)
	want = kit.OK(c, kit.Limit, shell(`HOME=%s git -C %s/clone rev-parse HEAD`, c.dir, c.tmp))
	if got := kit.OK(c, kit.Limit, shell(`HOME=%s git -C %[1]s/r.git rev-parse %s`, c.dir, branch)); got != want {
		c.Errorf("pushed %s, the server has %s", want, got)
	}
}

// TestProgGitDaemon clones and pushes by git's own protocol. git daemon passes each
// connection to a program as its standard input and output.
func TestProgGitDaemon(t *testing.T) {
	s := kit.NewSite(t)
	testPair(s, pair{
		needs: []string{"git"},
		port:  9418,
		server: func(dir string) []string {
			repository(t, dir)
			return []string{"env", "HOME=" + dir, "git", "daemon", "--reuseaddr", "--export-all", "--enable=receive-pack", "--base-path=" + dir, dir}
		},
		client: func(c *client) { gitClient(c, "git://"+c.addr+"/r.git") },
	})
}

// TestProgGitHTTP clones and pushes by HTTP, from git http-backend behind a static Go
// server.
func TestProgGitHTTP(t *testing.T) {
	s := kit.NewSite(t)
	testPair(s, pair{
		needs: []string{"git"},
		port:  8080,
		server: func(dir string) []string {
			repository(t, dir)
			backend := filepath.Join(strings.TrimSpace(kit.OK(t, kit.Limit, exec.Command("git", "--exec-path"))), "git-http-backend")
			return []string{kit.Probe(), "cgi", ":8080", backend, dir}
		},
		client: func(c *client) { gitClient(c, "http://"+c.addr+":8080/r.git") },
	})
}

// tree creates files of many sizes.
func tree(t *testing.T, dir string) {
	t.Helper()
	for i := range 40 {
		sub := fmt.Sprintf("%s/d%d", dir, i%5)
		if err := os.MkdirAll(sub, 0o755); err != nil {
			t.Fatal(err)
		}
		kit.Random(t, fmt.Sprintf("%s/f%d", sub, i), int64(i*i*1000))
	}
}

// same checks that two directories have the same content.
func (c *client) same(a, b string) {
	c.Helper()
	kit.OK(c, kit.Limit, exec.Command("diff", "-r", a, b))
}

// TestProgRsync runs rsync's daemon, which forks for each client: download, upload, and
// an update of changed files.
func TestProgRsync(t *testing.T) {
	s := kit.NewSite(t)
	testPair(s, pair{
		needs: []string{"rsync"},
		port:  873,
		server: func(dir string) []string {
			tree(t, dir+"/tree")
			conf := fmt.Sprintf("use chroot = yes\nuid = root\ngid = root\nreverse lookup = no\nlock file = %[1]s/lock\n[tree]\npath = %[1]s/tree\nread only = no\n", dir)
			return []string{"rsync", "--daemon", "--no-detach", "--config=" + kit.WriteFile(t, dir+"/conf", conf), "--log-file=" + dir + "/log"}
		},
		client: func(c *client) {
			c.ok("rsync", "-a", "rsync://"+c.addr+"/tree/", c.tmp+"/got")
			c.same(c.dir+"/tree", c.tmp+"/got")
			kit.Random(c, c.tmp+"/got/d1/f36", 3<<20)
			c.ok("rsync", "-az", "--delete", "--checksum", c.tmp+"/got/", "rsync://"+c.addr+"/tree/")
			c.same(c.dir+"/tree", c.tmp+"/got")
		},
	})
}

// TestProgSSH runs OpenSSH with privilege separation and re-execution: commands, a
// terminal, sftp, a forwarded port.
func TestProgSSH(t *testing.T) {
	s := kit.NewSite(t)
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // in the test's own /run; sshd requires it
		t.Fatal(err)
	}
	testPair(s, pair{
		needs: []string{"/usr/sbin/sshd", "ssh", "sftp", "ssh-keygen"},
		heavy: true,
		port:  2222,
		server: func(dir string) []string {
			for _, key := range []string{"host", "user"} {
				kit.OK(t, kit.Limit, exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", dir+"/"+key))
			}
			tree(t, dir+"/tree")
			conf := fmt.Sprintf("Port 2222\nHostKey %[1]s/host\nAuthorizedKeysFile %[1]s/user.pub\nPidFile %[1]s/pid\nPermitRootLogin yes\nStrictModes no\nUsePAM no\nSubsystem sftp /usr/lib/openssh/sftp-server\n", dir)
			return []string{"/usr/sbin/sshd", "-D", "-e", "-f", kit.WriteFile(t, dir+"/conf", conf)}
		},
		client: func(c *client) {
			options := []string{"-F", "none", "-i", c.dir + "/user", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"}
			ssh := func(args ...string) []string {
				return append(append([]string{"ssh", "-p", "2222"}, options...), args...)
			}
			if got := c.ok(ssh("root@"+c.addr, "echo $SSH_CONNECTION; exit 0")...); !strings.HasSuffix(got, " "+c.addr+" 2222\n") {
				c.Errorf("SSH_CONNECTION is %q", got)
			}
			if r := kit.Run(c, kit.Limit, c.in(ssh("root@"+c.addr, "exit 7")...)); r.Status != 7 {
				c.Errorf("exit 7 became %v", r)
			}
			if got := c.ok(ssh("-tt", "root@"+c.addr, "tty; stty size")...); !strings.HasPrefix(got, "/dev/pts/") {
				c.Errorf("a terminal: %q", got)
			}
			// Copy in both directions at once over one connection.
			kit.Random(c, c.tmp+"/file", 10<<20)
			got := c.sh("%s <%s/file | sha256sum", strings.Join(ssh("-o", "Compression=no", "root@"+c.addr, "cat"), " "), c.tmp)
			if !strings.HasPrefix(got, sum(c.T, c.tmp+"/file")) {
				c.Errorf("10 MiB came back with the sum %s", got)
			}
			c.ok(append(append([]string{"scp", "-qr", "-P", "2222"}, options...), "root@"+c.addr+":"+c.dir+"/tree", c.tmp+"/got")...)
			c.same(c.dir+"/tree", c.tmp+"/got")
			// Forward a port of the client to the server's own port, and run ssh within
			// ssh.
			got = c.sh(`%s -fNL 2223:127.0.0.1:2222 -o ExitOnForwardFailure=yes -o ControlMaster=yes -o ControlPath=%s/ctl root@%s &&
				ssh -p 2223 %[4]s root@127.0.0.1 echo within; ssh -o ControlPath=%[2]s/ctl -O exit root@%[3]s 2>/dev/null`,
				strings.Join(ssh(), " "), c.tmp, c.addr, strings.Join(options, " "))
			if got != "within\n" {
				c.Errorf("by the forwarded port: %q", got)
			}
		},
	})
}
