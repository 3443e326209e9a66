// SPDX-License-Identifier: Apache-2.0

package extcap

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/lklrun/lklrun/internal/base/text"
)

// marked is a line of the script. Install overwrites an existing file only if it
// contains this line.
const marked = "# made by lklctl extcap --install"

// foldersLimit is the timeout of the call of tshark.
const foldersLimit = 30 * time.Second

// Install writes the program that Wireshark runs, a script that calls lklctl, into a
// directory for external captures, and returns its path. The default is the user's own
// directory, which Wireshark supports since 4.2; for older versions, it is the
// directory for all users.
func Install(ctx context.Context, dir, lklctl string) (string, error) {
	var err error
	if dir == "" {
		if dir, err = Folder(ctx); err != nil {
			return "", err
		}
	}
	path := filepath.Join(dir, Prefix)
	old, err := os.ReadFile(path)
	if err == nil && !strings.Contains(string(old), marked) {
		return "", fmt.Errorf("%s: already exists and was not created by lklctl; remove it, or give another folder", path)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", pathError(dir, err)
	}
	script := "#!/bin/sh\n" + marked + "\nexec " + text.Quote([]string{lklctl}) + " extcap \"$@\"\n"
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		return "", pathError(path, err)
	}
	return path, nil
}

func pathError(path string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%s: %w; run lklctl as root, or give a folder of yours that Wireshark searches", path, fs.ErrPermission)
	}
	return err
}

// folderLine is a line of `tshark -G folders`.
var folderLine = regexp.MustCompile(`(?m)^(Personal Extcap path|Global Extcap path|Extcap path):\s+(\S.*)$`)

// Folder runs tshark to find the directory of external captures.
func Folder(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, foldersLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, "tshark", "-G", "folders").Output()
	if err != nil {
		return "", fmt.Errorf("asking tshark for its extcap folder: %w; give the folder as DIR", err)
	}
	return chooseFolder(string(out))
}

// chooseFolder prefers the user's own directory.
func chooseFolder(folders string) (string, error) {
	dir := ""
	for _, m := range folderLine.FindAllStringSubmatch(folders, -1) {
		if m[1] == "Personal Extcap path" {
			return m[2], nil
		}
		dir = m[2]
	}
	if dir == "" {
		return "", errors.New("tshark -G folders: no extcap folder; give the folder as DIR")
	}
	return dir, nil
}
