#!/bin/sh
# Trains a draft for SmolLM2-135M-Instruct on one GPU, without network. Run it again after a kill, a full disk or the
# time limit (exit status 75): it continues where the state in OUT ends.
#
#   [INITIAL=DRAFT] samples/train_smollm2_draft.sh TARGET TEXT PROMPTS OUT [16m|19m|12m-narrow] [further flags]
#
#   INITIAL  folder of a finished draft of the same width to start from, with as many layers or fewer: only the second
#            stage runs. Without it both do, from random weights.
#   TARGET   SmolLM2-135M-Instruct as a folder or a .gguf file
#   TEXT     folder of .txt files; a manifest.json in it may name their licences
#   PROMPTS  JSON lines with "prompt" and "category": never trained on, the card reports acceptance on them
#   OUT      folder of the draft
#   flags    such as --time-limit 540, or --target-linear int4 to train against the weights of an int4 bundle
#            (the flag is not needed for a Q4_1 GGUF exported as int4_asym: those are its weights already)
#
# Shapes. Exported with --draft-vocab 8192 the head is 2.1 M weights, and a draft's pass stays in the processor's caches:
# 0.12 to 0.2 ms beside 5 ms or more of the target, so layers are cheap.
#   19m         256 wide, 8 layers (6.3 M weights): the shipped one
#   16m         256 wide, 4 layers (3.1 M)
#   12m-narrow  192 wide, 6 layers: for machines whose caches are small
#
# Measured on one H100 with the 19m shape and INITIAL: the target writes 51,000 answer tokens a second at 2,560 rows
# (190 s for 9.7 M) and takes 55 GB for their keys and values, so smaller GPUs need a smaller --write-batch; training runs
# at 295,000 tokens a second (254 s for 1,111 steps of 65,536). Answers of 384 tokens after prompts of up to 512, since
# summaries and answers from passages have long prompts; three of four greedy, since that is what most drafts run under.
set -eu

if [ $# -lt 4 ]; then
    sed -n '2,14s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
target=$1 text=$2 prompts=$3 out=$4
shift 4
variant=19m
case ${1:-} in
16m | 19m | 12m-narrow)
    variant=$1
    shift
    ;;
esac
case $variant in
16m) shape="--hidden 256 --layers 4 --heads 4 --kv-heads 2 --ffn 768" ;;
19m) shape="--hidden 256 --layers 8 --heads 4 --kv-heads 2 --ffn 768" ;;
12m-narrow) shape="--hidden 192 --layers 6 --heads 3 --kv-heads 1 --ffn 576" ;;
esac
first="--text-length 1024 --text-steps 900 --text-rate 2e-3 --text-warmup 50"
if [ -n "${INITIAL:-}" ]; then first="--initial-draft $INITIAL --text-length 1024 --text-steps 0"; fi

export HF_HUB_OFFLINE=1
# shellcheck disable=SC2086  # the shape is several flags
exec python -m pilotfish.exporter.training draft \
    --target "$target" --data "$text" --out "$out" --evaluation-prompts "$prompts" $shape \
    $first --self-text-length 1024 --self-text-steps 1111 --self-text-rate 1.5e-3 --self-text-warmup 30 \
    --write-tokens 9500000 --write-batch 2560 --write-prompt 512 --write-answer 384 \
    --write-temperatures 0,0,0,0.8 --excerpt-share 0.4 --evaluate-every 100 --checkpoint-every 200 --patience 1000 \
    --batch-tokens 65536 --loss forward-kl --seed 0 "$@"
