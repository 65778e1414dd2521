//! Shell commands: what destroys, what hides it, and what is only a day's work.

use deadstop_core::Effect;
use serde_json::json;

use super::{check, check_effect};

/// Checks what a shell command destroys.
#[track_caller]
fn check_shell(cases: &[(&str, &str)]) {
    for (command, destroys) in cases {
        check("Bash", &json!({ "command": command }), destroys);
    }
}

/// Checks that commands destroy nothing.
#[track_caller]
fn check_harmless(commands: &[&str]) {
    for command in commands {
        let effects = crate::of("Bash", &json!({ "command": command }));
        let lost: Vec<_> = effects.harms.iter().filter(|harm| harm.counts()).collect();
        assert!(lost.is_empty(), "{command}: {lost:?}");
    }
}

#[test]
fn files() {
    check_shell(&[
        ("rm notes.md", "rm notes.md"),
        ("rm a b c", "rm a; rm b; rm c"),
        ("rm -rf data", "rm -rf data"),
        ("rm -r data/", "rm -r data"),
        ("rm -rf /", "rm -rf /"),
        ("rm -rf ./*", "rm -rf *"),
        ("rm -rf ~", "rm -rf ~"),
        ("rm -- -odd", "rm -odd"),
        ("rm -rf \"$DATA\"", "rm -rf $DATA"),
        ("rm -rf node_modules src", "rm -rf src"),
        ("rm -rf {dist,src}", "rm -rf src"),
        ("rm -rf /tmp/../home/ann", "rm -rf /home/ann"),
        ("rm $TEMPLATES/a.html", "rm $TEMPLATES/a.html"),
        ("cd /srv/app && rm -rf data", "rm -rf /srv/app/data"),
        ("cd src; cd ..; rm -rf data", "rm -rf data"),
        ("(cd /tmp && ls); rm x.md", "rm x.md"),
        ("mkdir -p data && rm -rf data", "rm -rf data"),
        ("echo x >> a.csv; rm a.csv", "rm a.csv"),
        ("cp a.txt data; rm -rf data", "rm -rf data"),
        ("unlink a.md", "unlink a.md"),
        ("shred -u secrets.txt", "shred secrets.txt"),
        ("truncate -s 0 orders.csv", "truncate orders.csv"),
        ("truncate --size=0 orders.csv", "truncate orders.csv"),
        ("find . -name '*.md' -delete", "find -delete . -name *.md"),
        ("find /srv -mtime +3 -exec rm -f {} \\;", "find -exec rm /srv -mtime +3"),
        ("find . -type f | xargs rm -f", "xargs rm -f . -type f"),
        ("git ls-files -o | xargs -0 -n 1 rm", "xargs rm git ls-files -o"),
        ("ls *.md | xargs -I{} rm {}", "xargs rm *.md"),
        ("dd if=/dev/zero of=/dev/sda bs=1M", "dd /dev/sda"),
        ("mkfs.ext4 -F /dev/nvme0n1p1", "mkfs.ext4 /dev/nvme0n1p1"),
        ("wipefs -a /dev/sdb", "wipefs /dev/sdb"),
    ]);
}

#[test]
fn evasions() {
    check_shell(&[
        ("ls && rm -rf data", "rm -rf data"),
        ("false || rm a.md; echo", "rm a.md"),
        ("ls | tee x | rm a.md", "rm a.md"),
        ("(rm a.md)", "rm a.md"),
        ("{ rm a.md; }", "rm a.md"),
        ("if true; then rm a.md; else rm b.md; fi", "rm a.md; rm b.md"),
        ("for f in a.md b.md; do rm \"$f\"; done", "rm a.md; rm b.md"),
        ("while read f; do rm $f; done < list", "rm $f"),
        ("case $x in a) rm a.md ;; esac", "rm a.md"),
        ("f() { rm a.md; }; f", "rm a.md"),
        ("echo $(rm a.md)", "rm a.md"),
        ("echo \"`rm a.md`\"", "rm a.md"),
        ("x=$(rm a.md)", "rm a.md"),
        ("cat <(rm a.md)", "rm a.md"),
        ("cat <<EOF\n$(rm a.md)\nEOF", "rm a.md"),
        ("rm a.md &", "rm a.md"),
        ("! rm a.md", "rm a.md"),
        ("time rm a.md", "rm a.md"),
        ("[[ -n $(rm a.md) ]]", "rm a.md"),
        ("sudo rm -rf data", "rm -rf data"),
        ("sudo -u root -- rm a.md", "rm a.md"),
        ("env -i X=1 rm a.md", "rm a.md"),
        ("X=1 nohup nice -n 5 rm a.md", "rm a.md"),
        ("timeout 5 rm a.md", "rm a.md"),
        ("timeout -k 1 5s rm a.md", "rm a.md"),
        ("command rm a.md", "rm a.md"),
        ("exec rm a.md", "rm a.md"),
        ("/bin/rm a.md", "rm a.md"),
        ("\\rm a.md", "rm a.md"),
        ("'rm' a.md", "rm a.md"),
        ("r\"\"m a.md", "rm a.md"),
        ("$'\\x72m' a.md", "rm a.md"),
        ("R=rm; $R -rf data", "rm -rf data"),
        ("C='rm -rf data'; $C", "rm -rf data"),
        ("rm${IFS}-rf${IFS}data", "rm -rf data"),
        ("$(echo rm) -rf data", "rm -rf data"),
        ("bash -c 'rm a.md'", "rm a.md"),
        ("sh -lc \"cd /srv && rm -rf data\"", "rm -rf /srv/data"),
        ("bash -e -c 'rm a.md' name", "rm a.md"),
        ("eval 'rm a.md'", "rm a.md"),
        ("eval \"$(echo rm a.md)\"", "rm a.md"),
        ("bash <<'EOF'\nrm a.md\nEOF", "rm a.md"),
        ("bash <<< 'rm a.md'", "rm a.md"),
        ("echo 'rm a.md' | sh", "rm a.md"),
        ("cat <<EOF | bash -s\nrm a.md\nEOF", "rm a.md"),
        ("ssh -i key host 'rm -rf data'", "rm -rf data"),
        ("cd /tmp && ssh host rm -rf data", "rm -rf data"),
        ("su -c 'rm a.md' ann", "rm a.md"),
        ("trap 'rm a.md' EXIT", "rm a.md"),
        ("docker exec -it db bash -c 'rm -rf data'", "rm -rf data"),
        ("kubectl exec pod -n x -- rm -rf data", "rm -rf data"),
        ("busybox rm a.md", "rm a.md"),
        ("find . -exec bash -c 'rm a.md' \\;", "rm a.md"),
        ("ls # comment\nrm a.md", "rm a.md"),
        ("rm \\\n  -rf \\\n  data", "rm -rf data"),
    ]);
    check("shell", &json!({ "command": ["bash", "-lc", "rm -rf x"] }), "rm -rf x");
    check("local_shell", &json!({ "command": ["rm", "-rf", "x"] }), "rm -rf x");
    check("run_commands", &json!({ "commands": ["cd x", "rm -rf y"] }), "rm -rf x/y");
    check("run_commands", &json!({ "commands": ["ls", "pwd", "rm y"] }), "rm y");
    check("anything", &json!({ "cmd": "rm -rf x" }), "rm -rf x");
    check("terminal", &json!({ "script": "rm -rf x" }), "rm -rf x");
    check("make_slides", &json!({ "script": "rm -rf x" }), "");
}

#[test]
fn tools() {
    check_shell(&[
        ("git push --force", "git push --force"),
        ("git push -f origin main", "git push --force origin main"),
        ("git push origin +main", "git push --force origin +main"),
        ("git push origin --delete old", "git push --delete origin old"),
        ("git push origin :old", "git push --delete origin :old"),
        ("git -C repo reset --hard HEAD~3", "git reset --hard HEAD~3"),
        ("git reset --hard", "git reset --hard HEAD"),
        ("git clean -fdx", "git clean ."),
        ("git branch -D a b", "git branch -D a b"),
        ("terraform destroy -auto-approve", "terraform destroy"),
        ("terraform -chdir=infra apply -destroy", "terraform destroy infra"),
        ("terraform destroy -target=aws_db.x", "terraform destroy aws_db.x"),
        ("kubectl -n prod delete deployment api", "kubectl delete deployment api"),
        ("helm uninstall api", "helm uninstall api"),
        ("docker rm -f db", "docker rm db"),
        ("docker volume rm data", "docker volume rm data"),
        ("docker system prune -af", "docker system prune"),
        ("docker compose down -v", "docker compose down -v"),
        ("aws s3 rm s3://b/k --recursive", "aws s3 rm s3://b/k"),
        ("aws --profile p s3 rb s3://b", "aws s3 rb s3://b"),
        ("aws ec2 terminate-instances --instance-ids i-1", "aws ec2 terminate-instances i-1"),
        ("aws rds delete-db-instance --db-instance-identifier x", "aws rds delete-db-instance x"),
        ("gcloud compute instances delete vm-1 --quiet", "gcloud compute instances delete vm-1"),
        ("az group delete --name rg --yes", "az group delete rg"),
        ("gh repo delete o/r --yes", "gh repo delete o/r"),
        ("gh api -X DELETE /repos/o/r", "gh api DELETE /repos/o/r"),
        ("heroku apps:destroy -a x", "heroku apps:destroy x"),
        ("dropdb prod", "dropdb prod"),
        ("redis-cli -h cache FLUSHALL", "redis-cli FLUSHALL cache"),
        ("echo flushdb | redis-cli", "redis-cli FLUSHDB"),
        ("psql $URL -c \"DROP TABLE x\"", "DROP TABLE table=x"),
        ("psql --command='TRUNCATE t'", "TRUNCATE table=t"),
        ("psql <<SQL\nDROP TABLE x;\nSQL", "DROP TABLE table=x"),
        ("echo 'DROP TABLE x' | psql", "DROP TABLE table=x"),
        ("mysql -u root -e 'DELETE FROM t'", "DELETE table=t"),
        ("sqlite3 app.db \"DELETE FROM t\"", "DELETE table=t"),
        ("docker compose exec db psql -c 'DROP TABLE x'", "DROP TABLE table=x"),
        ("mongosh --eval 'db.dropDatabase()'", "mongosh dropDatabase db.dropDatabase()"),
        ("curl -X DELETE https://u:p@api.x.io/a?k=1", "DELETE https://api.x.io/a"),
        ("curl -sXDELETE https://api.x.io/a", "DELETE https://api.x.io/a"),
        ("curl --request=DELETE api.x.io/a", "DELETE api.x.io/a"),
        ("http DELETE api.x.io/a", "DELETE api.x.io/a"),
    ]);
}

#[test]
fn ordinary_work() {
    check_harmless(&[
        "rm -rf node_modules package-lock.json && npm install",
        "rm -rf build && make",
        "rm -rf ./target/debug dist/ coverage .next",
        "rm -f *.o src/*.pyc",
        "find . -name __pycache__ -type d -exec rm -rf {} +",
        "find . -name '*.pyc' -delete",
        "find . -name '*.pyc' | xargs rm -f",
        "find /tmp/x -type f -delete",
        "find . -type d -empty -delete",
        "rm -rf /tmp/x /var/tmp/y /var/folders/ab/T/z \"$TMPDIR/q\"",
        "cd /tmp && rm -rf repo && git clone u repo",
        "cd \"$(mktemp -d)\" && git init && rm -rf *",
        "d=$(mktemp -d); trap 'rm -rf \"$d\"' EXIT; make DEST=$d",
        "TMP=/tmp/x; rm -rf \"$TMP\"/*",
        "for d in build dist; do rm -rf \"$d\"; done",
        "rm -rf \"${OUT:-/tmp/out}\"",
        "cat > try.py <<'EOF'\nprint(1)\nEOF\npython try.py; rm try.py",
        "mkdir scratch && cd scratch && touch a && cd .. && rm -rf scratch",
        "go build -o app . && ./app; rm app",
        "cp a.toml b.toml && ./try b.toml; rm -f b.toml",
        "rm -f .git/index.lock",
        "rmdir old",
        "git rm -r old && git commit -m 'rm -rf old'",
        "git checkout -- file.rs",
        "git push --force-with-lease origin topic",
        "git push -u origin main",
        "git push --dry-run --force",
        "git clean -nfd",
        "git clean -fdX",
        "git clean -fd target",
        "git branch -d merged",
        "git reset --soft HEAD~1",
        "git reset HEAD file",
        "cd /tmp/clone && git reset --hard origin/main",
        "git commit -m \"$(cat <<'EOF'\nDon't `rm -rf data` (or $(rm x)) any more\n\nDROP TABLE t;\nEOF\n)\"",
        "git commit -m 'DROP TABLE users; rm -rf /'",
        "git log --grep='delete' && grep -rn 'DROP TABLE' .",
        "echo \"rm -rf /\"",
        "echo 'rm -rf data' >> notes.md",
        "printf 'rm -rf %s' data",
        "cat > clean.sh <<'EOF'\nrm -rf data\nEOF",
        "cat <<'EOF' > t.sql\nDROP TABLE x;\nEOF",
        "# rm -rf data\nls",
        "grep 'rm -rf' -r . | xargs ls",
        "man rm; rm --help; command -v rm; which rm",
        "terraform plan -destroy",
        "terraform apply",
        "kubectl delete pod x --dry-run=client",
        "kubectl get pods; helm list",
        "docker run --rm -v x:/y image ls",
        "docker compose down",
        "docker ps -a",
        "aws s3 ls; aws ec2 describe-instances",
        "aws s3 rm s3://b/k --dryrun",
        "aws sqs delete-message --queue-url u",
        "gcloud compute instances list",
        "gh pr list; gh api repos/o/r",
        "psql -c 'SELECT 1'",
        "psql -c '\\dt'",
        "sqlite3 :memory: 'DROP TABLE x'",
        "sqlite3 /tmp/t.db 'DROP TABLE x'",
        "redis-cli GET key",
        "curl -X DELETE http://localhost:8080/items/1",
        "curl -X POST https://api.x.io/delete",
        "dd if=/dev/zero of=disk.img bs=1M count=1",
        "dd if=x of=/dev/null",
        "truncate -s 1G big.img",
        "npm run delete-old; make clean; cargo clean",
        "python delete.py --drop",
        "sed -i '/DROP TABLE/d' x.sql",
        "rm",
        "rm -rf",
        "rm -rf \"",
        "if then fi rm -rf data (",
        "",
    ]);
}

#[test]
fn effects() {
    let cases: &[(Effect, &[&str])] = &[
        (
            Effect::Inert,
            &["echo hi", "sleep 5", "true", ":", "date; pwd && whoami", "X=1", "", "echo a 2>&1"],
        ),
        (
            Effect::Reads,
            &[
                "ls -la | head -5",
                "cat a | grep b | sort | uniq -c",
                "cd src && git status && git log --oneline -5",
                "git diff HEAD~1 -- a; git show x; git blame f; git branch -a",
                "find . -name '*.rs' | xargs wc -l",
                "find . -name x -exec grep y {} \\;",
                "rg foo 2>/dev/null",
                "ls > /dev/null 2>&1",
                "awk '{print $1}' f | jq . | tr a b",
                "sed -n 1,5p f",
                "curl -s https://x.io | jq .a",
                "curl -s -o /dev/null -I https://x.io",
                "psql -c 'SELECT * FROM t'",
                "for f in *; do wc -l $f; done",
                "[[ -f a ]] && cat a",
                "env | grep X",
                "gh pr view 3",
                "git push --dry-run",
            ],
        ),
        (
            Effect::Changes,
            &[
                "make",
                "ls > out.txt",
                "echo hi >> notes.md",
                "sed -i s/a/b/ f",
                "git commit -m x",
                "git branch new",
                "cat a | tee b",
                "curl -d x=1 https://x.io",
                "curl -o a https://x.io",
                "find . -exec touch {} \\;",
                "ls $(make)",
                "unknown-tool",
                "echo \"",
                "ls &> log.txt",
                "git stash",
            ],
        ),
    ];
    for (effect, commands) in cases {
        for command in *commands {
            check_effect("bash", &json!({ "command": command }), *effect);
        }
    }
}
