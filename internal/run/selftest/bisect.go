// SPDX-License-Identifier: Apache-2.0

package selftest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/base/lazyregexp"
)

// A Verdict is what a commit is for a search: the words of git bisect.
type Verdict string

// Verdicts.
const (
	Good    Verdict = "good"
	Bad     Verdict = "bad"
	Skipped Verdict = "skip" // it cannot be built
)

// Bisect searches the commit that made tests fail, in a worktree of its own.
type Bisect struct {
	Work      string // folder of the worktree
	tree      string
	good, bad string // commits
	lock      *os.File
}

var (
	firstBad = lazyregexp.New(`(?m)^([0-9a-f]{40,64}) is the first bad commit$`)
	left     = lazyregexp.New(`(?m)^Bisecting: ([0-9]+) revision`)
)

// NewBisect checks GOOD..BAD and makes the worktree of a kernel tree, which is linked to the
// tree's repository. Its path is always the same, so the next search compiles only what differs.
func NewBisect(ctx context.Context, tree, span string) (*Bisect, error) {
	good, bad, ok := strings.Cut(span, "..")
	if !ok || good == "" || bad == "" || strings.HasPrefix(bad, ".") {
		return nil, exit.Usagef("--bisect %s: expected GOOD..BAD, such as v6.11..HEAD", span)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	if tree, err = filepath.EvalSymlinks(tree); err == nil {
		tree, err = filepath.Abs(tree)
	}
	if err != nil {
		return nil, exit.Usagef("--kernel %w", err)
	}
	b := &Bisect{tree: tree}
	if top, err := b.git(ctx, tree, "rev-parse", "--show-toplevel"); err != nil || top != tree {
		return nil, exit.Usagef("--bisect: %s is not the top folder of a git repository; name it with --kernel", tree)
	}
	for _, c := range []struct {
		to   *string
		name string
	}{{&b.good, good}, {&b.bad, bad}} {
		if *c.to, err = b.git(ctx, tree, "rev-parse", "--verify", "--quiet", "--end-of-options", c.name+"^{commit}"); err != nil {
			return nil, exit.Usagef("--bisect %s: %s has no commit %s", span, tree, c.name)
		}
	}
	if _, err := b.git(ctx, tree, "merge-base", "--is-ancestor", b.good, b.bad); err != nil || b.good == b.bad {
		return nil, exit.Usagef("--bisect %s: %s is not an ancestor of %s", span, good, bad)
	}
	// `lklrun stack clean` deletes this name.
	b.Work = filepath.Join(cache, "lklrun", fmt.Sprintf("work-bisect-%x", crc32.ChecksumIEEE([]byte(tree))))
	if err := os.MkdirAll(filepath.Dir(b.Work), 0o755); err != nil {
		return nil, err
	}
	if b.lock, err = os.Create(b.Work + ".lock"); err != nil {
		return nil, err
	}
	if err := unix.Flock(int(b.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		b.lock.Close()
		return nil, exit.Usagef("--bisect: another search in %s is running", tree)
	}
	if err := b.prepare(ctx); err != nil {
		b.lock.Close()
		return nil, err
	}
	return b, nil
}

// Close ends the search. The worktree remains for the next one.
func (b *Bisect) Close() error { return b.lock.Close() }

func (b *Bisect) prepare(ctx context.Context) error {
	if _, err := b.git(ctx, b.Work, "bisect", "reset", "HEAD"); err == nil {
		return b.checkout(ctx, b.bad)
	}
	if err := os.RemoveAll(b.Work); err != nil {
		return err
	}
	_, err := b.git(ctx, b.tree, "worktree", "add", "--quiet", "--force", "--force", "--detach", b.Work, b.bad)
	return err
}

func (b *Bisect) checkout(ctx context.Context, commit string) error {
	_, err := b.git(ctx, b.Work, "checkout", "--quiet", "--force", "--detach", commit)
	return err
}

// git runs git, without the hooks and settings of this process's own repository.
func (b *Bisect) git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", dir, "-c", "core.hooksPath=/dev/null"}, args...)...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "GIT_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "LC_ALL=C")
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	err := cmd.Run()
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil {
		text := strings.TrimSpace(log.String() + "\n" + out.String())
		err = fmt.Errorf("git %s: %w: %s", args[0], err, text[strings.LastIndexByte(text, '\n')+1:])
	}
	return strings.TrimSpace(out.String()), err
}

// Name returns a commit as people write it: the beginning of its hash, and its subject.
func (b *Bisect) Name(ctx context.Context, commit string) (string, error) {
	return b.git(ctx, b.Work, "log", "-1", "--format=%h %s", commit)
}

// Run searches. It calls judge for each commit in turn, whose files are in the worktree: first for
// BAD, then for GOOD, then for those between. left is the number of commits that remain after this
// one, or -1. It returns the commits that may have made the tests fail: one, or more if there
// were some that cannot be built.
func (b *Bisect) Run(ctx context.Context, judge func(ctx context.Context, commit string, left int) (Verdict, error)) ([]string, error) {
	for _, end := range []struct {
		commit string
		want   Verdict
	}{{b.bad, Bad}, {b.good, Good}} {
		if err := b.checkout(ctx, end.commit); err != nil {
			return nil, err
		}
		got, err := judge(ctx, end.commit, -1)
		if err != nil {
			return nil, err
		}
		if got != end.want {
			name, err := b.Name(ctx, end.commit)
			return nil, errors.Join(err, fmt.Errorf("--bisect: expected that %s is %s, but it is %s", name, end.want, map[Verdict]string{
				Good: "good: no test fails", Bad: "bad: the tests fail there, too", Skipped: "not possible to build it",
			}[got]))
		}
	}
	out, err := b.git(ctx, b.Work, "bisect", "start", b.bad, b.good)
	for err == nil {
		if m := firstBad().FindStringSubmatch(out); m != nil {
			return []string{m[1]}, nil
		}
		n := 0
		if m := left().FindStringSubmatch(out); m != nil {
			n, _ = strconv.Atoi(m[1]) // digits
		}
		commit, err := b.git(ctx, b.Work, "rev-parse", "HEAD")
		if err != nil {
			return nil, err
		}
		verdict, err := judge(ctx, commit, n)
		if err != nil {
			return nil, err
		}
		var status *exec.ExitError
		if out, err = b.git(ctx, b.Work, "bisect", string(verdict)); errors.As(err, &status) && status.ExitCode() == 2 {
			return b.candidates(ctx) // only those remain that cannot be built
		} else if err != nil {
			return nil, err
		}
	}
	return nil, err
}

// candidates returns the commits that are left.
func (b *Bisect) candidates(ctx context.Context) ([]string, error) {
	good, err := b.git(ctx, b.Work, "for-each-ref", "--format=^%(objectname)", "refs/bisect/good-*")
	if err != nil {
		return nil, err
	}
	out, err := b.git(ctx, b.Work, append([]string{"rev-list", "refs/bisect/bad"}, strings.Fields(good)...)...)
	return strings.Fields(out), err
}
