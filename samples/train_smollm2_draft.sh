#!/bin/sh
# Trains a draft for SmolLM2-135M-Instruct on one GPU, without network. Run it again after a kill, a full disk or the
# time limit (exit status 75): it continues where the state in OUT ends.
#
#   samples/train_smollm2_draft.sh TARGET TEXT PROMPTS OUT [16m|19m-deep|12m-narrow] [further flags]
#
#   TARGET   SmolLM2-135M-Instruct as a folder or a .gguf file
#   TEXT     folder of .txt files; a manifest.json in it may name their licences
#   PROMPTS  JSON lines with "prompt" and "category": never trained on, the card reports acceptance on them
#   OUT      folder of the draft
#   flags    such as --time-limit 540, or --target-linear int4 to train against the weights of an int4 bundle
#            (the flag is not needed for a Q4_1 GGUF exported as int4_asym: those are its weights already)
#
# Shapes. Drafting reads the output head (49,152 rows) once a token, so the head decides the cost and layers are cheap:
#   16m         256 wide, 4 layers: 12.6 M weights of head, 3.1 M of layers; the shape that other drafts are compared with
#   19m-deep    256 wide, 8 layers: 3.1 M more of int4 layers, 12 % more bytes to read under an int8 head
#   12m-narrow  192 wide, 6 layers: a head of 9.4 M, a quarter less to read
#
# Batch and rate. 65,536 tokens a step fill the GPU in one pass (64 rows of 1,024) and still leave 900 + 360 steps; 2e-3
# is usual for a model of this size at that batch, half of it where the text changes to the target's own. 5 : 2 between
# the stages as in the recipe for speculator training (Wertheimer et al. 2024, "Accelerating Production LLMs with
# Combined Token/Embedding Speculators").
#
# Cost, estimated. Training: 82.6 M tokens times (2 * 134.5 M for the target's forward pass + 6 * 15.7 M for the draft)
# = 3.0e16 floating-point operations, 3.4e16 with attention; at 10 % of an H100's bf16 peak (narrow matrices) 6 minutes,
# of which about 100 s are softmax passes over the vocabulary at 2.5 TB/s. Writing: 12 M answer tokens in about 60 batches
# of 1,024 conversations and 384 decoding steps, 12 ms each when captured: 5 minutes. Tokenising 220 MB: 1 minute on 16
# cores. Together 13 minutes, and about 13 GB of GPU memory for the cache of the conversations.
set -eu

if [ $# -lt 4 ]; then
    sed -n '2,12s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
target=$1 text=$2 prompts=$3 out=$4
shift 4
variant=16m
case ${1:-} in
16m | 19m-deep | 12m-narrow)
    variant=$1
    shift
    ;;
esac
case $variant in
16m) shape="--hidden 256 --layers 4 --heads 4 --kv-heads 2 --ffn 768" ;;
19m-deep) shape="--hidden 256 --layers 8 --heads 4 --kv-heads 2 --ffn 768" ;;
12m-narrow) shape="--hidden 192 --layers 6 --heads 3 --kv-heads 1 --ffn 576" ;;
esac

export HF_HUB_OFFLINE=1
# shellcheck disable=SC2086  # the shape is several flags
exec python -m pilotfish.exporter.training draft \
    --target "$target" --data "$text" --out "$out" --evaluation-prompts "$prompts" $shape \
    --text-length 1024 --text-steps 900 --text-rate 2e-3 --text-warmup 50 \
    --self-text-length 512 --self-text-steps 360 --self-text-rate 1e-3 --self-text-warmup 20 \
    --write-tokens 12000000 --write-batch 1024 --write-prompt 192 --write-answer 320 --excerpt-share 0.5 \
    --batch-tokens 65536 --loss forward-kl --seed 0 "$@"
